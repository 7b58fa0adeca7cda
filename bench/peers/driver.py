"""Running one workload against a peer whose workers are up, and the line that says how it went.

Submission times are noted just before each call, finish times come from the marks file. For W4 the peer's own "wait for
a result" is timed as well, where it has one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import common


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


def drive(peer: Peer, a: argparse.Namespace, marks: common.Marks, workers: common.Workers) -> None:
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


def warm_up(peer: Peer, a: argparse.Namespace, marks: common.Marks, workers: common.Workers, kind: str) -> None:
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


def one_at_a_time(peer: Peer, kind: str, ids: list[str], marks: common.Marks, rep: Repetition) -> None:
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


def all_at_once(
    peer: Peer, a: argparse.Namespace, kind: str, ids: list[str], marks: common.Marks, rep: Repetition
) -> None:
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


def emit(
    peer: Peer, a: argparse.Namespace, marks: common.Marks, workers: common.Workers, rep: Repetition, cpu: float
) -> None:
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
        "steps_per_s": round(len(lat) * common.steps_of(a) / wall, 1) if rated else None,
        "runs_per_s": round(len(lat) / wall, 2) if rated else None,
        "p50_ms": round(common.quant(lat, .5), 2) if lat else None,
        "p95_ms": round(common.quant(lat, .95), 2) if lat else None,
        "wall_s": round(wall, 3) if wall else None,
        "submit_s": round(rep.submit_s, 4), "finished": len(lat), "ok": rep.ok,
        "notes": rep.problem + peer.notes, "dups": marks.dups,
        "worker_cpu_s": round(workers.cpu_s() - cpu, 2), "peak_rss_mb": workers.peak_rss_mb(),
        "workers_alive": workers.alive(),
    }  # fmt: skip
    if rep.native_ms:
        row["native_p50_ms"] = round(common.quant(rep.native_ms, 0.5), 2)
        row["native_p95_ms"] = round(common.quant(rep.native_ms, 0.95), 2)
    if peer.redis_cli:
        row["redis_cmds"] = peer.redis_cli.info("stats")["total_commands_processed"]
    if not rep.ok:
        row["notes"] += f"; log {workers.log_tail()}"
    print(json.dumps(row), flush=True)


def leave(marks: common.Marks, workers: common.Workers) -> None:
    """Ends the workers and this process, without the peers' own finalisers: some raise at interpreter exit."""
    workers.stop()
    marks.close()
    sys.stdout.flush()
    os._exit(0)
