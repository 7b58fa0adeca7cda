"""Shared measuring code of the peer benchmarks.

Every peer's last step of a run appends one line "<run id> <epoch seconds>" to a
marks file (O_APPEND, one small write), so that the finish time is taken inside
the worker in the same way for every peer and language. The driver notes the
time just before each submit call, tails the marks file, and reports. For W4 the
driver also records the time at which the peer's own "wait for result" call
returned, where the peer has one.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
REDIS_HOST = os.environ.get("BENCH_REDIS_HOST", "127.0.0.1")
REDIS_PORT = int(os.environ.get("BENCH_REDIS_PORT", "6390"))
PG_HOST = os.environ.get("BENCH_PG_HOST", "127.0.0.1")
PG_PORT = int(os.environ.get("BENCH_PG_PORT", "5490"))
PG_USER = os.environ.get("BENCH_PG_USER", "postgres")
PG_PASSWORD = os.environ.get("BENCH_PG_PASSWORD", "")


def redis_url(db: int = 0) -> str:
    """Address of the peers' Redis."""
    return f"redis://{REDIS_HOST}:{REDIS_PORT}/{db}"


def pg_url(dbname: str, driver: str = "") -> str:
    """Address of a database; ``driver`` as SQLAlchemy writes it."""
    secret = f":{PG_PASSWORD}" if PG_PASSWORD else ""
    return f"postgresql{driver}://{PG_USER}{secret}@{PG_HOST}:{PG_PORT}/{dbname}"


# ---- inside workers -------------------------------------------------------
_fd = None


def mark(run_id: str) -> None:
    """Called by the last step of a run."""
    global _fd
    if _fd is None:
        _fd = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(_fd, f"{run_id} {time.time():.6f}\n".encode())


# ---- driver ---------------------------------------------------------------
def cli(configs: list[str], default: str) -> argparse.Namespace:
    """The command line that every script has."""
    p = argparse.ArgumentParser()
    p.add_argument("--workload", required=True, choices=["W1", "W2", "W3", "W4", "W5"])
    p.add_argument("--runs", type=int, help="runs (W1 1000, W3 300, W4 50, W5 1000)")
    p.add_argument("--shards", type=int, default=1000)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--concurrency", type=int, default=1)
    p.add_argument("--config", default=default, choices=configs)
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--timeout", type=float, default=120)
    a = p.parse_args()
    if a.runs is None:
        a.runs = {"W1": 1000, "W2": 1, "W3": 300, "W4": 50, "W5": 1000}[a.workload]
    return a


def steps_of(a: argparse.Namespace) -> int:
    """Steps executed per run."""
    return {"W1": a.steps, "W2": a.shards + 1, "W3": 6, "W4": 6, "W5": 6}[a.workload]


def quant(xs: list[float], q: float) -> float:
    """A quantile, the nearest measured value."""
    return sorted(xs)[min(len(xs) - 1, round(q * (len(xs) - 1)))]


class Marks:
    """The file that last steps append to, and what has been read of it: ``seen`` is {run id: epoch seconds}."""

    def __init__(self) -> None:
        fd, self.path = tempfile.mkstemp(prefix="bench-marks-")
        os.close(fd)
        os.chmod(self.path, 0o666)
        os.environ["BENCH_MARKS"] = self.path
        atexit.register(self.close)
        self.pos = 0
        self.seen: dict[str, float] = {}
        self.dups = 0

    def reset(self) -> None:
        """Forgets what has been seen."""
        self.poll()
        self.seen = {}
        self.dups = 0

    def poll(self) -> int:
        """Reads on; how many runs have finished."""
        with open(self.path, "rb") as f:
            f.seek(self.pos)
            data = f.read()
        end = data.rfind(b"\n") + 1
        self.pos += end
        for line in data[:end].splitlines():
            rid, t = line.split()
            if rid.decode() in self.seen:
                self.dups += 1
            else:
                self.seen[rid.decode()] = float(t)
        return len(self.seen)

    def wait(self, n: int, timeout: float, every: float = 0.005) -> bool:
        """True when n distinct runs have finished before the time-out."""
        end = time.time() + timeout
        while self.poll() < n:
            if time.time() > end:
                return False
            time.sleep(every)
        return True

    def close(self) -> None:
        """Deletes the file."""
        Path(self.path).unlink(missing_ok=True)


class Workers:
    """Worker processes, started in their own session and ended by pid."""

    def __init__(self) -> None:
        self.procs: list[subprocess.Popen[bytes]] = []
        # A driver that is ended from outside or fails must not leave workers behind.
        atexit.register(self.stop)
        signal.signal(signal.SIGTERM, lambda *_: (self.stop(), os._exit(124)))
        self.log = tempfile.NamedTemporaryFile(prefix="bench-log-", delete=False)  # noqa: SIM115

    def start(self, cmd: list[str], env: dict[str, str] | None = None, cwd: str | Path = HERE) -> None:
        """Starts one; what it says goes to the log."""
        e = dict(os.environ, PYTHONPATH=str(HERE), PYTHONUNBUFFERED="1", **(env or {}))
        self.procs.append(
            subprocess.Popen(cmd, env=e, cwd=cwd, stdout=self.log, stderr=self.log, start_new_session=True)
        )

    def tree(self) -> list[Any]:
        """They and all below them."""
        import psutil

        out = []
        for p in self.procs:
            try:
                q = psutil.Process(p.pid)
                out += [q, *q.children(recursive=True)]
            except psutil.Error:
                pass
        return out

    def peak_rss_mb(self) -> list[float]:
        """Peak resident size (VmHWM) of each process, MiB."""
        out = []
        for q in self.tree():
            try:
                lines = Path(f"/proc/{q.pid}/status").read_text().splitlines()
            except OSError:
                continue
            out += [round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM")]
        return out

    def cpu_s(self) -> float:
        """CPU seconds that they have used."""
        total = 0.0
        for q in self.tree():
            try:
                c = q.cpu_times()
            except Exception:
                continue
            total += c.user + c.system
        return total

    def alive(self) -> int:
        """How many still run."""
        return sum(p.poll() is None for p in self.procs)

    def log_tail(self, size: int = 400) -> str:
        """The end of what they said."""
        return Path(self.log.name).read_text(errors="replace")[-size:]

    def stop(self) -> None:
        """Asks them to end and kills those that do not within five seconds. A second call does nothing."""
        for p in self.procs:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        for p in self.procs:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        self.log.close()
        Path(self.log.name).unlink(missing_ok=True)
