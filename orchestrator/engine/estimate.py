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
from django.db import connection
from django.db.models import Max, Min, OuterRef, QuerySet, Subquery

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
Place = tuple[str, int, str]
History = list[tuple[float, float]]


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
    if not _goes_on(run):
        return None
    place = _place(run)
    return _estimate(run, now or record_now(), reached, _histories([place])[place])


def _goes_on(run: Run) -> bool:
    return run.state == RunState.RUNNING and not run.stop


def _place(run: Run) -> Place:
    return run.workflow, run.version, run.current_step


def _estimate(run: Run, now: datetime, reached: datetime | None, history: History) -> Estimate | None:
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
    """Estimates of a page of runs: two queries at most."""
    page, now = list(runs), now or record_now()
    live = [run.id for run in page if _goes_on(run)]
    made = Step.objects.filter(run=OuterRef("pk"), step=OuterRef("current_step")).order_by().values("created_at")[:1]
    rows = Run.objects.filter(pk__in=live).annotate(reached=Subquery(made)).values_list("pk", "reached") if live else []
    reached = dict(rows)
    known = _histories({_place(run) for run in page if _goes_on(run)})
    found: dict[uuid.UUID, Estimate | None] = dict.fromkeys(run.id for run in page)
    for run in page:
        if _goes_on(run):
            begun = reached.get(run.id) or run.started_at or run.submitted_at
            found[run.id] = _estimate(run, now, begun, known[_place(run)])
    return found


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


# One index scan of the workflow's newest runs for each of the places asked about; all places in one statement.
_HISTORIES = f"""
SELECT k.workflow, k.version, k.step, extract(epoch FROM h.finished_at - h.started_at)::float8,
       extract(epoch FROM h.finished_at - coalesce(h.reached, h.started_at))::float8
FROM unnest(%s::text[], %s::int[], %s::text[]) AS k(workflow, version, step)
CROSS JOIN LATERAL (
    SELECT r.id, r.started_at, r.finished_at,
           (SELECT s.created_at FROM workflow_steps s WHERE s.run_id = r.id AND s.step = k.step LIMIT 1) AS reached
    FROM (SELECT id, version, state, started_at, finished_at FROM workflow_runs
          WHERE workflow = k.workflow ORDER BY id DESC LIMIT {WINDOW}) r
    WHERE r.version = k.version AND r.state = 'done' AND r.started_at IS NOT NULL
    ORDER BY r.id DESC LIMIT {SAMPLE}) h
ORDER BY h.id DESC
"""


def _histories(places: Iterable[Place]) -> dict[Place, History]:
    """Pairs of (whole length, time from reaching the step to the end) in seconds, newest first, of each place."""
    keys = {place: "history:{}:{}:{}".format(*place) for place in places}
    kept: dict[str, History] = cache.get_many(keys.values())
    missing = [place for place, key in keys.items() if key not in kept]
    if missing:
        read: dict[Place, History] = {place: [] for place in missing}
        with connection.cursor() as cursor:
            cursor.execute(_HISTORIES, [list(column) for column in zip(*missing, strict=True)])
            for workflow, version, step, whole, left in cursor.fetchall():
                read[(workflow, version, step)].append((whole, left))
        cache.set_many({keys[place]: history for place, history in read.items()}, KEPT_SECONDS)
        kept |= {keys[place]: history for place, history in read.items()}
    return {place: kept[key] for place, key in keys.items()}


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of an ordered, non-empty sample lies."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
