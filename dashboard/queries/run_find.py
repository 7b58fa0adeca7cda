"""Finding the run of a page, and the sign by which a region that polls knows that nothing has changed."""

from __future__ import annotations

import uuid

from django.db.models import Count, Exists, IntegerField, Max, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce, JSONObject
from django.utils import timezone

from dashboard.render import make_tag
from orchestrator.models import Attempt, AuditRecord, Run, Step

#: A live run is drawn again after this many seconds though no row changed: what stands still becomes late.
STALE = 10


def find_run(run_id: uuid.UUID) -> Run | None:
    """The run with what its head names."""
    return Run.objects.select_related("parent_step", "parent_run").filter(pk=run_id).first()


def find_with_signs(run_id: uuid.UUID) -> Run | None:
    """The same with what :func:`run_tag` looks at, ``failed_attempts`` and ``has_children``. One query."""
    newest = {name: Max(name) for name in ("started_at", "finished_at", "ready_at")}
    sign = JSONObject(**newest, progress=Sum("progress"), waiting=Count("id", filter=Q(state="waiting")))
    own = OuterRef("pk")
    steps = Step.objects.filter(run=own).order_by().values("run").annotate(sign=sign).values("sign")
    tries = Attempt.objects.filter(run=own).order_by().values("run").annotate(n=Count("pk")).values("n")
    found: Run | None = (
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
    return found


def run_tag(run: Run, *scope: object) -> str:
    """A tag that changes when anything does of the run, from :func:`find_with_signs`. ``scope``: what else counts."""
    age = int(timezone.now().timestamp()) // STALE if run.finished_at is None else 0
    signs, record = run.signs, run.record  # type: ignore[attr-defined]
    return make_tag(run.updated_at, run.state, sorted((signs or {}).items()), record, age, *scope)
