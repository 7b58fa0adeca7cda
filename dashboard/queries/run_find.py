"""Finding the run of a page, and the sign by which a region that polls knows that nothing has changed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, IntegerField, Max, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce, JSONObject
from django.utils import timezone

from dashboard.render import make_tag
from orchestrator.models import Attempt, AuditRecord, Run, Step

#: A live run is drawn again after this many seconds though no row changed: what stands still becomes late.
STALE = 10


@dataclass(frozen=True)
class Found:
    """A run with what :func:`run_tag` looks at: the newest times of its rows, and the id of its newest record."""

    run: Run
    signs: dict[str, Any] | None
    record: int | None
    failed_attempts: int
    has_children: bool


def find_run(run_id: uuid.UUID) -> Run | None:
    """The run with what its head names."""
    return Run.objects.select_related("parent_step", "parent_run").filter(pk=run_id).first()


def find_with_signs(run_id: uuid.UUID) -> Found | None:
    """The same with the signs of what has changed. One query."""
    newest = {name: Max(name) for name in ("started_at", "finished_at", "ready_at")}
    sign = JSONObject(**newest, progress=Sum("progress"), waiting=Count("id", filter=Q(state="waiting")))
    own = OuterRef("pk")
    steps = Step.objects.filter(run=own).order_by().values("run").annotate(sign=sign).values("sign")
    tries = Attempt.objects.filter(run=own).order_by().values("run").annotate(n=Count("pk")).values("n")
    row: Any = (
        Run.objects.select_related("parent_step", "parent_run")
        .annotate(
            signs=Subquery(steps),
            record=Subquery(AuditRecord.objects.filter(run=own).order_by("-id").values("pk")[:1]),
            failed_attempts=Coalesce(Subquery(tries), 0, output_field=IntegerField()),
            has_children=Exists(Run.objects.filter(parent_run=own)),
        )
        .filter(pk=run_id)
        .first()
    )
    return None if row is None else Found(row, row.signs, row.record, row.failed_attempts, row.has_children)


def run_tag(found: Found, *scope: object) -> str:
    """A tag that changes when anything does of the run. ``scope``: what else counts."""
    run = found.run
    age = int(timezone.now().timestamp()) // STALE if run.finished_at is None else 0
    signs = sorted((found.signs or {}).items())
    return make_tag(run.updated_at, run.state, signs, found.record, age, *scope)
