"""How things stand: counters, the runs that need somebody, failures by cause. Bounded counts, indexes only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from dashboard.keeping import kept_if_many
from dashboard.nav import BOUND, frame
from dashboard.queries.charts import Failed, failed
from dashboard.queries.dead_letters import Group, groups
from dashboard.queries.overdue import MISSED, risky_runs
from dashboard.queries.queues import Queue, Worker, queues, workers
from dashboard.queries.runs import RunRow, rows_of
from orchestrator.core.states import RunState
from orchestrator.models import Run

LIST = 8


def _bounded(table: str, where: str) -> str:
    return f"(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where} LIMIT {BOUND + 1}) x)"


# Stopped and not ended: the small index of such runs.
_HELD = (
    "stop IS NOT NULL AND NOT (state IN ('cancelled', 'done', 'failed')) "
    "AND compensation = 'pending' AND hold_until IS NOT NULL"
)
_COUNTS = f"""
SELECT
  {_bounded("workflow_runs", "state = 'running'")} AS running,
  (SELECT min(deadline_at) FROM workflow_runs WHERE state = 'running' AND deadline_at < now()) AS worst,
  {_bounded("workflow_runs", "state = 'compensating'")} AS compensating,
  (SELECT min(stopped_at) FROM workflow_runs
    WHERE state = 'compensating' AND stop IS NOT NULL
      AND NOT (state IN ('cancelled', 'done', 'failed'))) AS undoing_since,
  {_bounded("workflow_runs", "compensation = 'partial'")} AS partial,
  {_bounded("workflow_runs", _HELD)} AS held,
  (SELECT min(hold_until) FROM workflow_runs WHERE {_HELD}) AS held_until,
  {_bounded("workflow_runs", f"{MISSED} AND finished_at > now() - interval '24 hours'")} AS missed,
  {_bounded("workflow_steps", "state = 'queued'")} AS queued,
  (SELECT finished_at FROM workflow_runs WHERE state IN ('cancelled', 'done', 'failed')
    ORDER BY finished_at DESC LIMIT 1) AS last_end,
  (SELECT min(ready_at) FROM workflow_steps WHERE state = 'waiting' AND waiting_for = 'retry') AS next_try,
  (SELECT json_object_agg(waiting_for, n) FROM (SELECT waiting_for, count(*) AS n FROM (
     SELECT waiting_for FROM workflow_steps WHERE state = 'waiting' LIMIT {BOUND + 1}) x GROUP BY 1) w) AS waits
"""


@dataclass(frozen=True)
class Counts:
    """The tiles. ``waits``: what steps wait for, with how many; times are the worst of each.

    ``partial``: ended runs whose undo is incomplete. ``held``: stopped, their undo waits for an operator until then.
    """

    running: int
    overdue: int
    worst: datetime | None
    compensating: int
    undoing_since: datetime | None
    partial: int
    held: int
    held_until: datetime | None
    missed: int
    queued: int
    last_end: datetime | None
    retrying: int
    next_try: datetime | None
    waits: dict[str, int]
    at_risk: int
    next_at_risk: datetime | None

    @property
    def waiting(self) -> int:
        """Steps that wait for anything but a try."""
        return sum(self.waits.values())


@dataclass(frozen=True)
class Overview:
    """Everything on the page. ``beat_at``: when the dispatcher was seen last."""

    counts: Counts
    rows: list[RunRow]
    dead: list[Group]
    dead_total: int
    queues: list[Queue]
    workers: list[Worker]
    beat_at: datetime | None
    failed: Failed
    now: datetime

    @property
    def dispatcher_gone(self) -> bool:
        """Whether the dispatcher was seen once and is not seen any more."""
        return self.beat_at is not None and self.silent > beat_patience()

    @property
    def dispatcher_missing(self) -> bool:
        """Whether there is work and no dispatcher was ever seen."""
        return self.beat_at is None and bool(self.counts.running or self.counts.compensating)

    @property
    def deepest(self) -> Queue | None:
        """The queue with most to do, if any has something."""
        return max((queue for queue in self.queues if queue.depth), key=lambda queue: queue.depth, default=None)

    @property
    def stuck(self) -> list[Queue]:
        """Queues with work and nobody to do it."""
        return [queue for queue in self.queues if queue.mark == "down"]

    @property
    def silent(self) -> float:
        """Seconds since the dispatcher's last beat."""
        return (self.now - self.beat_at).total_seconds() if self.beat_at else 0.0


def beat_patience() -> float:
    """Seconds without a beat after which the dispatcher counts as gone, as ``/readyz`` has it."""
    return max(3 * float(settings.ORCHESTRATOR.sweep_seconds), 3.0)


def overview() -> Overview:
    """The page in a fixed number of queries."""
    counts, risky = _counts()
    dead, total = groups(limit=4)
    found = workers()
    return Overview(
        counts,
        _attention(risky),
        dead,
        total,
        queues(found),
        found,
        frame().beat_at,
        failed(),
        timezone.now(),
    )


def _read() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS)
        names = [column.name for column in cursor.description or ()]
        row = dict(zip(names, cursor.fetchone(), strict=True))
    waits = json.loads(row["waits"] or "{}") if not isinstance(row["waits"], dict) else row["waits"]
    return {**row, "retrying": waits.pop("retry", 0), "waits": waits}


def _most(row: dict[str, Any]) -> int:
    counts: list[int] = [row["running"], row["queued"], row["missed"], row["retrying"], *row["waits"].values()]
    return max(counts)


def _counts() -> tuple[Counts, list[Any]]:
    row = kept_if_many("dashboard:overview", _read, _most)
    risky = risky_runs()
    counts = Counts(
        **row, overdue=frame().counts["overdue"], at_risk=len(risky), next_at_risk=risky[0][1] if risky else None
    )
    return counts, [run_id for run_id, _ in risky]


def _attention(risky: list[Any]) -> list[RunRow]:
    """Overdue runs first, then those at risk, then those that run longest."""
    live = Run.objects.filter(state=RunState.RUNNING).defer("input", "output")
    late = live.filter(deadline_at__lt=Now()).order_by("deadline_at")[:LIST]
    longest = live.order_by("id")[: 2 * LIST]
    parts = [late, longest, *([live.filter(pk__in=risky[:LIST])] if risky else [])]
    found = {run.pk: run for run in parts[0].union(*parts[1:], all=True)}
    now, soon = timezone.now(), set(risky[:LIST])

    def urgency(run: Run) -> tuple[int, Any]:
        if run.deadline_at and run.deadline_at < now:
            return 0, run.deadline_at
        return (1, run.deadline_at) if run.pk in soon else (2, run.pk)

    return rows_of(sorted(found.values(), key=urgency)[:LIST], at_risk=set(risky))
