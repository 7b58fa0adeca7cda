"""Runs a few processes side by side until told to stop: prints what they say, starts again whichever ends.

A child that ends is started again whatever its exit code: an RQ worker that loses Redis ends with 0. One that keeps
ending at once is started again more and more slowly. Children die with the supervisor, even by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, TextIO

TETHER = Path(__file__).with_name("tether.py")
#: A child that lived this long (seconds) is started again at once.
SETTLED = 10.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0


@dataclass
class Child:
    """One process to keep alive."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0
    wait: float = 0.0
    restarts: int = 0

    def is_running(self) -> bool:
        """Whether it runs at this moment."""
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """Keeps children alive. Not for use from a thread: the kernel ties children to the thread that forked them.

    Args:
        children: what to run; started in this order, stopped all at once.
        out: where their lines go, each after the child's name.
        watch: called every ``watch_every`` seconds, to look after what is not a child.
        grace: seconds that children have to stop before they are killed.
    """

    def __init__(
        self,
        children: list[Child],
        *,
        out: TextIO = sys.stdout,
        watch: Callable[[], None] | None = None,
        watch_every: float = 2.0,
        grace: float = 15.0,
    ) -> None:
        self.children = children
        self.out = out
        self.watch = watch
        self.watch_every = watch_every
        self.grace = grace
        self.stopping = False
        self._print = threading.Lock()
        self._width = max((len(child.name) for child in children), default=0)

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Makes :meth:`run` stop the children and return. A second call kills them."""
        if self.stopping:
            self.grace = 0.0
        self.stopping = True

    def run(self, *, on_start: Callable[[], None] | None = None) -> None:
        """Runs until :meth:`stop`, SIGINT or SIGTERM."""
        before = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            for child in self.children:
                self._start(child)
            if on_start:
                threading.Thread(target=on_start, daemon=True).start()
            next_watch = time.monotonic() + self.watch_every
            while not self.stopping:
                time.sleep(0.1)
                self._revive()
                if self.watch and time.monotonic() >= next_watch and not self.stopping:
                    self.watch()
                    next_watch = time.monotonic() + self.watch_every
        finally:
            self._stop_children()
            for number, handler in before.items():
                signal.signal(number, handler)

    def say(self, name: str, text: str) -> None:
        """Prints a line under a name."""
        with self._print:
            print(f"{name:<{self._width}} | {text}", file=self.out, flush=True)

    def _start(self, child: Child) -> None:
        child.started = time.monotonic()
        child.process = subprocess.Popen(
            [sys.executable, "-I", str(TETHER), str(os.getpid()), *child.command],
            env={**os.environ, "PYTHONUNBUFFERED": "1", **child.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops them in order
        )
        assert child.process.stdout is not None
        threading.Thread(target=self._copy, args=(child, child.process.stdout), daemon=True).start()

    def _copy(self, child: Child, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self.say(child.name, line.decode(errors="replace").rstrip())

    def _revive(self) -> None:
        now = time.monotonic()
        for child in self.children:
            if child.is_running():
                continue
            if child.process is not None:
                code = child.process.returncode
                child.wait = (
                    0.0 if now - child.started > SETTLED else min(max(FIRST_WAIT, 2 * child.wait), LONGEST_WAIT)
                )
                child.due, child.process = now + child.wait, None
                self.say(child.name, f"{_how_it_ended(code)}; starting again in {child.wait:g} s")
            elif now >= child.due:
                child.restarts += 1
                self._start(child)

    def _stop_children(self) -> None:
        self.stopping = True
        for child in self.children:
            if child.process is not None and child.is_running():
                child.process.terminate()
        begin = time.monotonic()
        while any(child.is_running() for child in self.children) and time.monotonic() - begin < self.grace:
            time.sleep(0.05)
        for child in self.children:
            if child.process is None:
                continue
            if child.is_running():
                self.say(child.name, f"did not stop within {self.grace:g} s; killed")
            # The whole session, so that no grandchild outlives it.
            _kill_session(child.process.pid)
            child.process.wait()


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"
