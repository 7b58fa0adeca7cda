"""When a run will probably end, from runs of the same workflow and version that ended well.

The measure is the time from reaching the run's current step to the end, so queue waits and retries are in it. The
sample is bounded and kept for a few seconds; with fewer than :data:`MIN_SAMPLE` runs there is no estimate.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from django.core.cache import cache
from django.db.models import F, Max, Min, OuterRef, QuerySet, Subquery

from orchestrator.core.states import Kind, RunState, StepState
from orchestrator.engine.clock import record_now
from orchestrator.models import Run, Step

SAMPLE = 200
MIN_SAMPLE = 5
#: The sample is looked for among this many latest runs of the workflow.
WINDOW = 2000
KEPT_SECONDS = 15
#: Runs from which the usual length of each step is taken.
STEP_SAMPLE = 20


@dataclass(frozen=True)
class Estimate:
    """``p50`` and ``p90``: half and nine tenths of such runs end by then. ``usual`` is their whole length in seconds.

    ``late`` is the share of the sample (0 to 1) that would end after the deadline.
    """

    p50: datetime
    p90: datetime
    usual: float
    late: float
    sample: int


def estimate(run: Run, now: datetime | None = None, reached: datetime | None = None) -> Estimate | None:
    """The estimate for a running run, or None: it is not under way, or too few runs took as long. Two queries at most.

    ``reached``: when the run came to its current step, where the caller knows.
    """
    now = now or record_now()
    if run.state != RunState.RUNNING or run.stop:
        return None
    history = _history(run.workflow, run.version, run.current_step)
    if len(history) < MIN_SAMPLE:
        return None
    start = run.available_at if run.started_at is None and run.available_at and run.available_at > now else now
    spent = max((now - (reached or _reached(run))).total_seconds(), 0.0) if start == now else 0.0
    # What was left for those that took longer than this run has already.
    left = sorted(after - spent for _, after in history if after > spent)
    if not left:
        return None
    late = 0.0
    if run.deadline_at is not None:
        until = (run.deadline_at - start).total_seconds()
        late = sum(seconds > until for seconds in left) / len(left)
    return Estimate(
        p50=start + timedelta(seconds=_quantile(left, 0.5)),
        p90=start + timedelta(seconds=_quantile(left, 0.9)),
        usual=median(whole for whole, _ in history),
        late=late,
        sample=len(history),
    )


def at_risk(run: Run, found: Estimate | None, now: datetime | None = None) -> bool:
    """Whether a running run, not yet overdue, has more than one chance in ten to miss its deadline."""
    now = now or record_now()
    if found is None or run.deadline_at is None or run.deadline_at <= now:
        return False
    return found.p90 > run.deadline_at


def estimates(runs: Iterable[Run], now: datetime | None = None) -> dict[uuid.UUID, Estimate | None]:
    """Estimates of a page of runs: one query, and one for each (workflow, version, step) that is not kept yet."""
    page, now = list(runs), now or record_now()
    live = [run.id for run in page if run.state == RunState.RUNNING and not run.stop]
    made = Step.objects.filter(run=OuterRef("pk"), step=OuterRef("current_step")).order_by().values("created_at")[:1]
    rows = Run.objects.filter(pk__in=live).annotate(reached=Subquery(made)).values_list("pk", "reached") if live else []
    reached = dict(rows)
    return {run.id: estimate(run, now, reached.get(run.id) or run.started_at or run.submitted_at) for run in page}


def usual_lengths(workflow: str, version: int) -> dict[str, float]:
    """The median seconds of each step (a fan-out from its first start to its last end) over the latest done runs."""
    key = f"usual:{workflow}:{version}"
    kept: dict[str, float] | None = cache.get(key)
    if kept is None:
        recent = _done(workflow, version)[:STEP_SAMPLE].values("id")
        rows = Step.objects.filter(run__in=recent, kind=Kind.STEP, state=StepState.DONE, started_at__isnull=False)
        spans = rows.order_by().values("run", "step").annotate(start=Min("first_started_at"), end=Max("finished_at"))
        lengths: dict[str, list[float]] = {}
        for span in spans:
            if span["start"] is not None:
                lengths.setdefault(span["step"], []).append((span["end"] - span["start"]).total_seconds())
        kept = {step: median(seconds) for step, seconds in lengths.items()}
        cache.set(key, kept, KEPT_SECONDS * 4)
    return kept


def _reached(run: Run) -> datetime:
    """When the run reached its current step: the making of that step's first row."""
    if run.current_step:
        made: datetime | None = (
            Step.objects.filter(run=run, step=run.current_step).values_list("created_at", flat=True).first()
        )
        if made is not None:
            return made
    return run.started_at or run.submitted_at


def _done(workflow: str, version: int) -> QuerySet[Run]:
    recent = Run.objects.filter(workflow=workflow).order_by("-id").values("id")[:WINDOW]
    found = Run.objects.filter(id__in=recent, version=version, state=RunState.DONE, started_at__isnull=False)
    return found.order_by("-id")


def _history(workflow: str, version: int, step: str) -> list[tuple[float, float]]:
    """Pairs of (whole length, time from reaching ``step`` to the end) in seconds, newest first."""
    key = f"history:{workflow}:{version}:{step}"
    kept: list[tuple[float, float]] | None = cache.get(key)
    if kept is None:
        made = Step.objects.filter(run=OuterRef("pk"), step=step).order_by().values("created_at")[:1]
        rows = _done(workflow, version).annotate(reached=Subquery(made), begun=F("started_at"))[:SAMPLE]
        kept = [
            ((end - begun).total_seconds(), (end - (reached or begun)).total_seconds())
            for begun, reached, end in rows.values_list("begun", "reached", "finished_at")
        ]
        cache.set(key, kept, KEPT_SECONDS)
    return kept


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of an ordered, non-empty sample lies."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
