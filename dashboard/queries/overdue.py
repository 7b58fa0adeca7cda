"""Runs that are late, will probably be late, or were late in the last 24 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from dashboard.nav import frame
from dashboard.queries.runs import RunRow, rows_of
from orchestrator.core.states import RunState
from orchestrator.engine.estimate import at_risk, estimates
from orchestrator.models import Run

#: Rows of a list, and of one where more were asked for.
LIST, MORE = 12, 200
#: Running runs, nearest their deadline first, that are looked at for a risk, and seconds that the answer is kept.
LOOKED_AT = 100
KEPT = 15
MISSED_FOR = timedelta(hours=24)

#: Ended after the deadline: the predicate of the index ``workflow_runs_missed``, word for word.
MISSED = "state IN ('cancelled', 'done', 'failed') AND (deadline_missed_at IS NOT NULL OR finished_at > deadline_at)"
_MISSED = f"SELECT id FROM workflow_runs WHERE {MISSED} AND finished_at > %s ORDER BY finished_at DESC LIMIT %s"


@dataclass(frozen=True)
class Overdue:
    """Three lists; counts are bounded. ``cut``: one of them may go on."""

    late: list[RunRow]
    late_count: int
    risky: list[RunRow]
    missed: list[RunRow]
    cut: bool


def risky_runs() -> list[tuple[Any, Any]]:
    """(id, deadline) of runs that will probably miss their deadline, soonest first; kept for a few seconds."""
    known: list[tuple[Any, Any]] | None = cache.get("dashboard:at_risk")
    if known is None:
        near = Run.objects.filter(state=RunState.RUNNING, deadline_at__gte=Now()).order_by("deadline_at")
        runs, now = list(near.defer("input", "output")[:LOOKED_AT]), timezone.now()
        found = estimates(runs, now)
        known = [(run.pk, run.deadline_at) for run in runs if at_risk(run, found[run.id], now)]
        cache.set("dashboard:at_risk", known, KEPT)
    return known


def page(more: bool = False) -> Overdue:
    """The page of what is late; with ``more`` long lists."""
    most = MORE if more else LIST
    light = Run.objects.defer("input", "output")
    late = light.filter(state=RunState.RUNNING, deadline_at__lt=Now()).order_by("deadline_at")
    risky = [run_id for run_id, _ in risky_runs()]
    lists = [
        list(late[:most]),
        list(light.filter(pk__in=risky[:most]).order_by("deadline_at")) if risky else [],
        list(light.filter(pk__in=_missed(most)).order_by("-finished_at")),
    ]
    cut = not more and any(len(runs) >= most for runs in lists)
    rows = iter(rows_of([run for runs in lists for run in runs], at_risk=risky))
    first, second, third = ([next(rows) for _ in runs] for runs in lists)
    return Overdue(first, max(frame().counts["overdue"], len(first)), second, third, cut)


def _missed(most: int) -> list[Any]:
    """Ids of runs that missed their deadline and ended lately, the latest first."""
    with connection.cursor() as cursor:
        cursor.execute(_MISSED, [timezone.now() - MISSED_FOR, most])
        return [row[0] for row in cursor.fetchall()]
