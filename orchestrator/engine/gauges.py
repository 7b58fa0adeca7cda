"""The state of things as numbers for ``/metrics``: small statements over small indexes, each with a time of its own.

Counting what has ended is the one thing that grows with the record; it is kept for thirty times as long as it took,
so that scraping costs a few per cent at the most, and nothing is kept while it is quick.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from orchestrator.core.states import RUN_TERMINAL, RunState
from orchestrator.engine.estimate import at_risk, estimate
from orchestrator.models import Definition, Run

#: Running runs, nearest their deadline first, that are looked at for ``at risk``.
AT_RISK_RUNS = 200
AT_RISK_SECONDS = 0.5
QUICK_SECONDS = 0.1
KEEP_FACTOR = 30
TERMINAL = sorted(RUN_TERMINAL)


@dataclass(frozen=True)
class Gauge:
    """Values by label values. A gauge without labels has the one key ``()``."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], dict[tuple[str, ...], float]]


def _rows(statement: str, params: dict[str, Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


def _by_labels(statement: str) -> Callable[[], dict[tuple[str, ...], float]]:
    """A reader of rows whose last column is the value."""

    def read() -> dict[tuple[str, ...], float]:
        return {tuple(row[:-1]): float(row[-1]) for row in _rows(statement) if row[-1] is not None}

    return read


def _each_workflow(statement: str) -> Callable[[], dict[tuple[str, ...], float]]:
    """The same by workflow, with 0 for the published workflows that have none."""
    read = _by_labels(statement)
    return lambda: {(name,): 0.0 for name in published()} | read()


def published() -> list[str]:
    """Names of all workflows."""
    return list(Definition.objects.order_by("workflow").values_list("workflow", flat=True).distinct())


class _Ended:
    """Runs in a terminal state by workflow and state, and with an incomplete undo; kept as the module says."""

    def __init__(self) -> None:
        self.until = 0.0
        self.rows: list[Any] = []

    def read(self) -> list[Any]:
        if time.monotonic() >= self.until:
            begun = time.monotonic()
            self.rows = _rows(
                """SELECT workflow, state, count(*), count(*) FILTER (WHERE compensation = 'partial')
                   FROM workflow_runs WHERE state = ANY(%(terminal)s) GROUP BY workflow, state""",
                {"terminal": TERMINAL},
            )
            took = time.monotonic() - begun
            self.until = time.monotonic() + (took * KEEP_FACTOR if took > QUICK_SECONDS else 0)
        return self.rows


_ended = _Ended()


def _runs() -> dict[tuple[str, ...], float]:
    counts: Counter[tuple[str, ...]] = Counter({(name, str(state)): 0 for name in published() for state in RunState})
    live = _rows(
        """SELECT workflow, state, count(*) FROM workflow_runs
           WHERE state <> ALL(%(terminal)s) GROUP BY workflow, state""",
        {"terminal": TERMINAL},
    )
    for workflow, state, count, *_ in [*live, *_ended.read()]:
        counts[workflow, state] += count
    return {key: float(count) for key, count in counts.items()}


def _partial_undo() -> dict[tuple[str, ...], float]:
    counts: Counter[tuple[str, ...]] = Counter({(name,): 0 for name in published()})
    for workflow, _, _, partial in _ended.read():
        counts[workflow,] += partial
    return {key: float(count) for key, count in counts.items()}


def _at_risk() -> dict[tuple[str, ...], float]:
    counts: Counter[tuple[str, ...]] = Counter({(name,): 0 for name in published()})
    until = time.monotonic() + AT_RISK_SECONDS
    runs = Run.objects.filter(state=RunState.RUNNING, deadline_at__isnull=False).order_by("deadline_at")
    for run in runs.defer("input", "output")[:AT_RISK_RUNS]:
        if time.monotonic() > until:
            break
        counts[run.workflow,] += at_risk(run, estimate(run))
    return {key: float(count) for key, count in counts.items()}


GAUGES: tuple[Gauge, ...] = (
    Gauge("workflow_runs", "Runs in the record.", ("workflow", "state"), _runs),
    Gauge(
        "workflow_runs_overdue",
        "Running runs past their deadline.",
        ("workflow",),
        _each_workflow(
            """SELECT workflow, count(*) FROM workflow_runs
               WHERE state = 'running' AND deadline_at < now() GROUP BY workflow"""
        ),
    ),
    Gauge(
        "workflow_runs_at_risk",
        "Running runs that will probably miss their deadline (of those nearest to it).",
        ("workflow",),
        _at_risk,
    ),
    Gauge("workflow_runs_partial_undo", "Ended runs whose undo is incomplete.", ("workflow",), _partial_undo),
    Gauge(
        "workflow_dead_letters",
        "Open dead letters.",
        ("workflow",),
        _each_workflow("SELECT workflow, count(*) FROM workflow_dead_letters WHERE state = 'open' GROUP BY workflow"),
    ),
    Gauge(
        "workflow_queue_depth",
        "Steps and shards that wait for a worker.",
        ("queue",),
        _by_labels("SELECT queue, count(*) FROM workflow_steps WHERE state = 'queued' GROUP BY queue"),
    ),
    Gauge(
        "workflow_queue_oldest_seconds",
        "How long the first of them has waited.",
        ("queue",),
        _by_labels(
            """SELECT queue, greatest(extract(epoch FROM now() - min(ready_at)), 0)
               FROM workflow_steps WHERE state = 'queued' GROUP BY queue"""
        ),
    ),
    Gauge(
        "workflow_outbox_lag_seconds",
        "Age of the oldest ticket not yet handed to Redis.",
        (),
        _by_labels(
            """SELECT coalesce(greatest(extract(epoch FROM now() - (
                   SELECT created_at FROM workflow_outbox ORDER BY id LIMIT 1)), 0), 0)"""
        ),
    ),
    Gauge(
        "workflow_dispatcher_last_beat_seconds",
        "Seconds since the dispatcher was last seen; +Inf: never.",
        (),
        _by_labels(
            """SELECT coalesce(extract(epoch FROM now() - max(beat_at)), 'Infinity')
               FROM workflow_beats WHERE name = 'dispatcher'"""
        ),
    ),
    Gauge(
        "workflow_workers",
        "Worker processes alive.",
        ("queue",),
        _by_labels(
            """SELECT queue, count(*) FROM workflow_leases, unnest(queues) AS queue
               WHERE ended_at IS NULL AND expires_at > now() GROUP BY queue"""
        ),
    ),
    Gauge(
        "workflow_topic_running",
        "Attempts that hold a slot of the topic.",
        ("topic",),
        _by_labels(
            """SELECT t.name, count(s.id) FROM workflow_topics t
               LEFT JOIN workflow_steps s ON s.topic = t.name AND s.state = 'running' GROUP BY t.name"""
        ),
    ),
    Gauge(
        "workflow_topic_limit",
        "The topic's limit; absent when unlimited.",
        ("topic",),
        _by_labels('SELECT name, "limit" FROM workflow_topics WHERE "limit" IS NOT NULL'),
    ),
)
