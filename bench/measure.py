"""Runs the scripts, one after the other and in turns, and collects their JSON lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench import install
from bench.plan import Contestant, Workload, arguments

#: Seconds that one measurement may take, start-up included; then it is ended and counts as not finished.
LIMIT = 150


@dataclass(frozen=True)
class Task:
    """One measurement: a contestant, a workload, and the arguments of its script."""

    contestant: Contestant
    workload: Workload
    arguments: list[str]


def tasks(
    contestants: list[Contestant], workloads: list[Workload], quick: bool, scale: float
) -> Iterator[tuple[Workload, list[Task]]]:
    """For each workload the contestants that take part."""
    for workload in workloads:
        part = [
            Task(contestant, workload, given)
            for contestant in contestants
            if (given := arguments(contestant, workload, quick, scale)) is not None
        ]
        if part:
            yield workload, part


def run_rounds(
    groups: list[tuple[Workload, list[Task]]], rounds: int, environment: dict[str, str], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A B C A B C …: each round measures every contestant once, so that a ratio compares neighbours in time."""
    found = []
    for workload, part in groups:
        for number in range(1, rounds + 1):
            for task in part:
                row = run(task, environment)
                row.update(contestant=task.contestant.name, workload=workload.name, round=number)
                found.append(row)
                say(f"{workload.name:7} round {number}  {task.contestant.title:30} {figure_text(row, workload)}")
    return found


def run(task: Task, environment: dict[str, str]) -> dict[str, Any]:
    """One measurement. ``ok`` is false, with ``notes``, where it gave none."""
    words = [*install.command(task.contestant), *task.arguments]
    begin = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=install.NODE if task.contestant.node else install.PEERS,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        err = f"not finished within {LIMIT} s; {err}"
    except BaseException:
        _end(process)
        raise
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    row = lines[-1] if lines else {"ok": False, "notes": (err.strip().splitlines() or ["no output"])[-1]}
    if row.get("submit_s") and row.get("params", {}).get("runs"):
        row["submit_ms"] = round(1000 * row["submit_s"] / row["params"]["runs"], 3)
    row["took_s"] = round(time.monotonic() - begin, 1)
    return row


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Lets a script end its workers; kills it where it does not."""
    process.terminate()
    try:
        return process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def figure(row: dict[str, Any], workload: Workload) -> float | None:
    """The reported number of one measurement; None where it did not finish."""
    value = row.get(workload.figure) if row.get("ok") else None
    return float(value) if value else None


def figure_text(row: dict[str, Any], workload: Workload) -> str:
    """The same in words."""
    value = figure(row, workload)
    if value is None:
        return f"did not finish: {row.get('notes', '')}"[:200]
    return f"{value:,.1f} {workload.unit}"
