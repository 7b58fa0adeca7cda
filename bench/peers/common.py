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
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
        os.unlink(self.path)


class Workers:
    """Worker processes, started in their own session and ended by pid."""

    def __init__(self) -> None:
        self.procs: list[subprocess.Popen[bytes]] = []
        # A driver ended from outside must not leave workers behind.
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
        """Asks them to end and kills those that do not within five seconds."""
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
        os.unlink(self.log.name)


@dataclass
class Repetition:
    """One measured pass: when each run was submitted, and how it went."""

    t0: float
    submitted: dict[str, float] = field(default_factory=dict)
    native_ms: list[float] = field(default_factory=list)
    submit_s: float = 0.0
    ok: bool = True
    problem: str = ""


@dataclass
class Peer:
    """What a script hands to :func:`drive`.

    Attributes:
        submit: starts one run, ``submit(kind, run_id)``, and returns a handle; kind is "W1", "W2" or "W3".
        submit_many: where given, replaces the loop of submits: ``submit_many(kind, ids)``.
        wait: the peer's own wait for a result, ``wait(handle)``, timed in W4.
        redis_cli: whose command counter is reported.
    """

    name: str
    version: str
    submit: Callable[[str, str], Any]
    submit_many: Callable[[str, list[str]], None] | None = None
    wait: Callable[[Any], None] | None = None
    redis_cli: Any = None
    notes: str = ""
    warm_timeout: float = 15


def drive(peer: Peer, a: argparse.Namespace, marks: Marks, workers: Workers) -> None:
    """Runs one workload ``a.repeat`` times and prints a line for each."""
    kind = {"W4": "W3", "W5": "W3"}.get(a.workload, a.workload)
    warm_up(peer, a, marks, workers, kind)
    for number in range(a.repeat):
        marks.reset()
        ids = [f"r{number}x{i}-{os.getpid()}" for i in range(a.runs)]
        cpu = workers.cpu_s()
        if peer.redis_cli:
            peer.redis_cli.config_resetstat()
        rep = Repetition(time.time())
        try:
            if a.workload == "W4":
                one_at_a_time(peer, kind, ids, marks, rep)
            else:
                all_at_once(peer, a, kind, ids, marks, rep)
        except Exception as e:  # a peer that refuses the workload is a result too
            rep.ok, rep.problem = False, f"{type(e).__name__}: {str(e)[:300]}; "
            rep.submit_s = time.time() - rep.t0
        emit(peer, a, marks, workers, rep, cpu)
        if not rep.ok:
            break
        time.sleep(0.3)


def warm_up(peer: Peer, a: argparse.Namespace, marks: Marks, workers: Workers, kind: str) -> None:
    """Four small runs, so that connections, imports and caches exist."""
    keep, a.shards = a.shards, 4
    for i in range(4):
        peer.submit(kind, f"warm{i}-{os.getpid()}")
    if not marks.wait(4, peer.warm_timeout):
        notes = f"warm-up: {len(marks.seen)} of 4 runs finished in {peer.warm_timeout:g} s; log {workers.log_tail()}"
        row = {"peer": peer.name, "version": peer.version, "workload": a.workload, "ok": False, "finished": 0}
        print(json.dumps({**row, "params": {"workers": a.workers, "config": a.config}, "notes": notes}))
        workers.stop()
        marks.close()
        sys.stdout.flush()
        os._exit(1)
    a.shards = keep
    time.sleep(0.5)


def one_at_a_time(peer: Peer, kind: str, ids: list[str], marks: Marks, rep: Repetition) -> None:
    """W4: the next run is submitted when the one before has finished."""
    for run in ids:
        begin = rep.submitted[run] = time.time()
        handle = peer.submit(kind, run)
        rep.submit_s += time.time() - begin
        if peer.wait:
            peer.wait(handle)
            rep.native_ms.append((time.time() - begin) * 1000)
        end = time.time() + 20
        while run not in marks.seen and time.time() < end:
            marks.poll()
            time.sleep(0.001)
        rep.ok = rep.ok and run in marks.seen
        time.sleep(0.02)


def all_at_once(peer: Peer, a: argparse.Namespace, kind: str, ids: list[str], marks: Marks, rep: Repetition) -> None:
    """All runs are submitted, then waited for. W5 is about the calls alone: what they started is cut off."""
    if peer.submit_many and a.workload != "W2":
        rep.submitted = dict.fromkeys(ids, rep.t0)
        peer.submit_many(kind, ids)
    else:
        for run in ids:
            rep.submitted[run] = time.time()
            peer.submit(kind, run)
    rep.submit_s = time.time() - rep.t0
    rep.ok = a.workload == "W5" or marks.wait(a.runs, a.timeout)


def emit(peer: Peer, a: argparse.Namespace, marks: Marks, workers: Workers, rep: Repetition, cpu: float) -> None:
    """Prints the line of one repetition."""
    done = dict(marks.seen)
    lat = [(done[r] - rep.submitted[r]) * 1000 for r in done if r in rep.submitted]
    wall = (max(done.values()) - rep.t0) if done else None
    rated = a.workload in ("W1", "W2", "W3") and wall and rep.ok
    params = {"runs": a.runs, "workers": a.workers, "concurrency": a.concurrency, "config": a.config}
    if a.workload in ("W1", "W2"):
        params |= {"shards": a.shards} if a.workload == "W2" else {"steps": a.steps}
    row = {
        "peer": peer.name, "version": peer.version, "workload": a.workload, "params": params,
        "steps_per_s": round(len(lat) * steps_of(a) / wall, 1) if rated else None,
        "runs_per_s": round(len(lat) / wall, 2) if rated else None,
        "p50_ms": round(quant(lat, .5), 2) if lat else None,
        "p95_ms": round(quant(lat, .95), 2) if lat else None,
        "wall_s": round(wall, 3) if wall else None,
        "submit_s": round(rep.submit_s, 4), "finished": len(lat), "ok": rep.ok,
        "notes": rep.problem + peer.notes, "dups": marks.dups,
        "worker_cpu_s": round(workers.cpu_s() - cpu, 2), "peak_rss_mb": workers.peak_rss_mb(),
        "workers_alive": workers.alive(),
    }  # fmt: skip
    if rep.native_ms:
        row["native_p50_ms"] = round(quant(rep.native_ms, 0.5), 2)
        row["native_p95_ms"] = round(quant(rep.native_ms, 0.95), 2)
    if peer.redis_cli:
        row["redis_cmds"] = peer.redis_cli.info("stats")["total_commands_processed"]
    if not rep.ok:
        row["notes"] += f"; log {workers.log_tail()}"
    print(json.dumps(row), flush=True)


def leave(marks: Marks, workers: Workers) -> None:
    """Ends the workers and this process, without the peers' own finalisers: some raise at interpreter exit."""
    workers.stop()
    marks.close()
    sys.stdout.flush()
    os._exit(0)
