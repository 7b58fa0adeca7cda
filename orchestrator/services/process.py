"""Small tools for server processes: free ports, whose a pid is, waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

HOST = "127.0.0.1"


def port_is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen on the port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def arguments(pid: int) -> list[str]:
    """The command line of a live process; empty when there is none, or it is a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        return [os.fsdecode(part) for part in raw.split(b"\0") if part]
    except OSError:
        pass
    if Path("/proc/self/cmdline").exists():
        return []
    shown = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.split()


def wait_until(condition: Callable[[], bool], timeout: float, interval: float = 0.03) -> bool:
    """Whether the condition came true within ``timeout`` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(interval)
    return True


def end(pid: int, is_alive: Callable[[], bool], *, first: signal.Signals, timeout: float) -> bool:
    """Asks a process to stop and kills it past ``timeout`` seconds. Whether it went by itself."""
    try:
        os.kill(pid, first)
    except ProcessLookupError:
        return True
    by_itself = wait_until(lambda: not is_alive(), timeout)
    if not by_itself:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(), 5)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # if we started it: leave no zombie to an init that does not reap
    return by_itself


class Log:
    """A server's log file, opened for one start: knows which lines are of this start."""

    LIMIT = 10_000_000

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > self.LIMIT:
            path.replace(path.with_suffix(".log.1"))
        self.begin = path.stat().st_size if path.exists() else 0

    def reason(self, *telling: str) -> str:
        """The last line of this start that holds one of the words, else the last line."""
        with self.path.open("rb") as handle:
            handle.seek(self.begin)
            text = handle.read(1_000_000).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        chosen = [line for line in lines if any(word in line for word in telling)]
        return (chosen or lines or ["it left no word"])[-1]
