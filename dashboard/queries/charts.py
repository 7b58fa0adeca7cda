"""What the charts show: runs that ended by the hour, how long they took, how long steps waited for a worker.

From the counters kept by the hour, so a chart costs the same however many runs there are and outlives pruning.
Quantiles are estimated within the buckets of the histograms, as Prometheus does it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import connection

from dashboard.queries.runs import workflow_names
from dashboard.render import make_tag
from orchestrator.core.metric_names import RUN_BUCKETS, RUN_DURATION_BUCKET, STEPS_WAITING_BUCKET, WAIT_BUCKETS
from orchestrator.core.states import RunState
from orchestrator.core.text import clean
from orchestrator.engine.clock import record_now

#: Hours that can be looked at.
PERIODS = {24: "24 h", 72: "3 d", 168: "7 d"}
#: Seconds that an answer is kept.
KEPT = 30
ENDED = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)
#: Days before today whose failures are the usual, and how many of them are needed to say so.
USUAL_DAYS, LEAST_DAYS = 7, 2

_HOURS = """
SELECT hour, metric, labels->>'state', labels->>'le', sum(value) FROM workflow_rollup_hours
WHERE hour >= %(first)s AND metric = ANY(%(metrics)s)
  AND (%(workflow)s = '' OR metric = %(waits)s OR labels->>'workflow' = %(workflow)s)
GROUP BY 1, 2, 3, 4
"""
_FAILED = """
SELECT floor(extract(epoch FROM %s - hour) / 86400)::int AS day, sum(value) FROM workflow_rollup_hours
WHERE hour >= %s AND metric = %s AND labels->>'state' = 'failed' GROUP BY 1
"""
_FIRST = "SELECT min(hour) FROM workflow_rollup_hours"


@dataclass(frozen=True)
class Hour:
    """One hour: ``ended`` by state, quantiles in seconds or None where nothing ended or started."""

    at: datetime
    ended: dict[str, int]
    run_p50: float | None
    run_p90: float | None
    wait_p50: float | None
    wait_p90: float | None


@dataclass(frozen=True)
class Charts:
    """The hours of a period, oldest first; the last one is not over yet.

    ``workflow``: whose runs are counted, empty for all; waits are those of all queues in either case. ``workflows``
    can be chosen from.
    """

    hours: list[Hour]
    period: int
    workflow: str = ""
    workflows: tuple[str, ...] = ()

    @property
    def totals(self) -> dict[str, int]:
        """Runs that ended, by state."""
        return {state: sum(hour.ended[state] for hour in self.hours) for state in ENDED}

    @property
    def newest_first(self) -> list[Hour]:
        """For the table."""
        return self.hours[::-1]

    @property
    def latest(self) -> Hour | None:
        """The latest hour in which a run ended done."""
        return next((hour for hour in reversed(self.hours) if hour.run_p50 is not None), None)

    @property
    def latest_wait(self) -> Hour | None:
        """The latest hour in which a worker took a step."""
        return next((hour for hour in reversed(self.hours) if hour.wait_p50 is not None), None)

    @property
    def data(self) -> dict[str, Any]:
        """For the script that draws: ``x`` in epoch seconds and a list of values by series.

        The hour that is not over has no count while it has fewer than the one before: it would look like a collapse.
        """
        counts: dict[str, list[int | None]] = {
            str(state): [hour.ended[state] for hour in self.hours] for state in ENDED
        }
        if sum(self.hours[-1].ended.values()) < sum(self.hours[-2].ended.values()):
            for values in counts.values():
                values[-1] = None
        return {
            "x": [int(hour.at.timestamp()) for hour in self.hours],
            **counts,
            **{
                name: [None if (value := getattr(hour, name)) is None else round(value, 3) for hour in self.hours]
                for name in ("run_p50", "run_p90", "wait_p50", "wait_p90")
            },
        }


@dataclass(frozen=True)
class Failed:
    """Runs that ended failed in the last 24 hours, and the usual number in as long; None: not known yet."""

    today: int
    usual: float | None

    @property
    def is_unusual(self) -> bool:
        """Whether it is clearly more than usual: over twice as many, and three more."""
        return self.usual is not None and self.today > max(2 * self.usual, self.usual + 3)


def charts(given: str = "", workflow: str = "") -> Charts:
    """The period of ``given`` hours; another number than those of :data:`PERIODS` gives 24. ``workflow`` narrows the
    runs. Two queries, kept a while."""
    period = int(given) if given in {str(hours) for hours in PERIODS} else 24
    workflow = clean(workflow, 200)
    last = record_now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    key = f"dashboard:charts:{period}:{last:%d%H}:{make_tag(workflow)}"
    kept: Charts | None = cache.get(key)
    if kept is None:
        names = tuple(workflow_names())
        kept = Charts(_read(last - timedelta(hours=period - 1), last, workflow), period, workflow, names)
        cache.set(key, kept, KEPT)
    return kept


def failed() -> Failed:
    """Failures of the last 24 hours beside the usual. Two queries, kept a while."""
    kept: Failed | None = cache.get("dashboard:failed")
    if kept is None:
        end = record_now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        with connection.cursor() as cursor:
            cursor.execute(_FAILED, [end, end - timedelta(days=USUAL_DAYS + 1), RUN_DURATION_BUCKET])
            # An hour's beginning lies at least one hour before the end: the first day is 1 to 24 hours ago.
            days: dict[int, float] = defaultdict(float)
            for day, count in cursor.fetchall():
                days[day] += count
            cursor.execute(_FIRST)
            first: datetime | None = cursor.fetchone()[0]
        known = min(USUAL_DAYS, int((end - first).total_seconds() // 86400) - 1) if first else 0
        usual = sum(days[day] for day in range(1, known + 1)) / known if known >= LEAST_DAYS else None
        kept = Failed(int(days[0]), usual)
        cache.set("dashboard:failed", kept, KEPT)
    return kept


def _read(first: datetime, last: datetime, workflow: str) -> list[Hour]:
    ended: dict[datetime, dict[str, int]] = defaultdict(lambda: dict.fromkeys(map(str, ENDED), 0))
    runs: dict[datetime, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    waits: dict[datetime, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    with connection.cursor() as cursor:
        metrics = [RUN_DURATION_BUCKET, STEPS_WAITING_BUCKET]
        given: dict[str, Any] = {
            "first": first,
            "metrics": metrics,
            "waits": STEPS_WAITING_BUCKET,
            "workflow": workflow,
        }
        cursor.execute(_HOURS, given)
        for hour, metric, state, le, value in cursor.fetchall():
            if metric == STEPS_WAITING_BUCKET:
                waits[hour][le] += value
            elif state in ended[hour]:
                ended[hour][state] += round(value)
                if state == RunState.DONE:
                    runs[hour][le] += value
    found, at = [], first
    while at <= last:
        run = [quantile(runs[at], RUN_BUCKETS, share) for share in (0.5, 0.9)]
        wait = [quantile(waits[at], WAIT_BUCKETS, share) for share in (0.5, 0.9)]
        found.append(Hour(at, ended[at], run[0], run[1], wait[0], wait[1]))
        at += timedelta(hours=1)
    return found


def quantile(counts: Mapping[str, float], bounds: tuple[float, ...], share: float) -> float | None:
    """Seconds below which ``share`` of the observations lie, evenly spread within their bucket; None without any.

    ``counts`` holds observations by the bucket's upper bound as text, not cumulative. In the last, open bucket the
    answer is its lower bound.
    """
    total = sum(counts.values())
    if not total:
        return None
    by_bound: dict[float, float] = defaultdict(float)
    for le, count in counts.items():
        by_bound[float("inf") if le == "+Inf" else float(le)] += count
    wanted, seen, low = share * total, 0.0, 0.0
    for bound in sorted({*bounds, *by_bound}):
        if count := by_bound.get(bound, 0.0):
            if seen + count >= wanted:
                return low if bound == float("inf") else low + (bound - low) * (wanted - seen) / count
            seen += count
        low = bound if bound != float("inf") else low
    return low
