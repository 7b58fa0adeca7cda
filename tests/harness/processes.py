"""Real processes under test: start, kill, pause, read what they said. None outlives the tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from orchestrator.services.supervisor import TETHER
from tests.harness.wait import wait_until

PROJECT = Path(__file__).resolve().parents[2]
MANAGE = str(PROJECT / "manage.py")


class Process:
    """One process started by a test. Its stdout and stderr go to a file."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-I", str(TETHER), str(os.getpid()), *command],
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self.popen.pid

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def children(self) -> list[psutil.Process]:
        """Every process below it that lives, the nearest first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [p for p in psutil.Process(self.pid).children(recursive=True) if _lives(p)]
        return []

    def wait_for_children(self, count: int, timeout: float = 15) -> list[psutil.Process]:
        """Waits until it has at least so many processes below it."""
        return wait_until(
            lambda: found if len(found := self.children()) >= count else [], timeout, why=lambda: self.log_tail()
        )

    def signal(self, number: int) -> None:
        """Sends a signal to this process alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to this process alone; what is below it is left to notice."""
        self.signal(signal.SIGKILL)
        self.popen.wait(10)

    def kill_all(self) -> None:
        """SIGKILL to it and everything below it, as when a machine is lost."""
        family = self.children()
        self.signal(signal.SIGKILL)
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.popen.wait(10)
        psutil.wait_procs(family, 10)

    def pause(self) -> None:
        """SIGSTOP to it and everything below it: a machine that hangs."""
        for pid in [self.pid, *(child.pid for child in self.children())]:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Ends :meth:`pause`."""
        for pid in [*(child.pid for child in self.children()), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self, timeout: float = 20) -> int:
        """SIGTERM, as an operator stops it; its exit code."""
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"{self.name} did not stop within {timeout:g} s:\n{self.log_tail()}") from None

    def output(self) -> str:
        """All that it said."""
        return self.log.read_text(errors="replace")

    def log_tail(self, lines: int = 60) -> str:
        """The last lines that it said."""
        return "\n".join(self.output().splitlines()[-lines:])

    def wait_for_line(self, text: str, timeout: float = 15) -> None:
        """Waits until it has said something that holds ``text``."""
        wait_until(lambda: text in self.output() or not self.is_running(), timeout, why=lambda: self.log_tail())
        assert text in self.output(), f"{self.name} ended without saying {text!r}:\n{self.log_tail()}"


@contextlib.contextmanager
def ending(processes: list[Process]) -> Iterator[None]:
    """Kills all of them at the end, whatever happened."""
    try:
        yield
    finally:
        for process in processes:
            process.resume()
            process.kill_all()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
