"""Doing things at the same instant from several connections."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from orchestrator.core.states import StepState
from orchestrator.engine import transitions
from orchestrator.engine.db import Connection, connect
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.transitions import Closure, Ticket
from orchestrator.models import Run, Step


def done(row: Any, state: StepState = StepState.DONE, **more: Any) -> Closure:
    """The end of a claimed row."""
    return Closure(row.run_id, row.id, row.attempt, row.token, state, **more)


def claim(conn: Connection, holder: Any, *tickets: tuple[Any, str, int]) -> list[Any]:
    with conn.transaction():
        return transitions.claim(conn, [Ticket(*t) for t in tickets], holder)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Runs the calls at one instant, a thread each; their answers, or what they raised."""
    start = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        start.wait()
        try:
            answers[i] = calls[i]()
        except Exception as problem:  # the test looks at it
            answers[i] = problem
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@contextmanager
def opened(count: int) -> Iterator[list[Connection]]:
    conns = [connect(f"racer {i}") for i in range(count)]
    try:
        yield conns
    finally:
        for conn in conns:
            conn.close()


def racing(closers: list[list[list[Closure]]]) -> None:
    """Each closer has a thread and a connection; the n-th closes of all meet at one instant."""
    meet = threading.Barrier(len(closers))
    problems: list[Exception] = []

    def close(conn: Connection, batches: list[list[Closure]]) -> None:
        for batch in batches:
            meet.wait()
            try:
                close_attempts(conn, batch)
            except Exception as problem:
                problems.append(problem)

    with opened(len(closers)) as conns:
        threads = [threading.Thread(target=close, args=pair) for pair in zip(conns, closers, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems, problems[0]


def joins(step: str) -> Counter[int]:
    """How many runs have so many rows of the step; a lost join has none."""
    rows = Counter(Step.objects.filter(step=step).values_list("run_id", flat=True))
    return Counter(rows[run_id] for run_id in Run.objects.values_list("pk", flat=True))
