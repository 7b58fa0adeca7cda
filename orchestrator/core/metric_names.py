"""Names, labels and bucket bounds of the counters that the engine appends and ``/metrics`` reads.

A histogram is kept as one counter a bucket, not cumulative: an observation adds 1 to the single bucket it falls in
(``<name>_bucket`` with label ``le``) and its value to ``<name>_sum``. Cumulative buckets and ``<name>_count`` are
computed when they are read, so that one observation costs two small rows.
"""

from __future__ import annotations

from bisect import bisect_left

#: Labels workflow, state: from submission to the end, seconds.
RUN_DURATION = "workflow_run_duration_seconds"
RUN_DURATION_BUCKET = f"{RUN_DURATION}_bucket"
RUN_DURATION_SUM = f"{RUN_DURATION}_sum"
#: Labels workflow, cause.
RUNS_FAILED = "workflow_runs_failed_total"
#: Label workflow.
RUNS_MISSED_DEADLINE = "workflow_runs_missed_deadline_total"
#: Label queue: from ready to claimed, seconds.
STEPS_WAITING = "workflow_steps_waiting_seconds"
STEPS_WAITING_BUCKET = f"{STEPS_WAITING}_bucket"
STEPS_WAITING_SUM = f"{STEPS_WAITING}_sum"
#: Labels workflow, step, outcome (``done`` or the cause).
STEP_ATTEMPTS = "workflow_step_attempts_total"
#: No labels.
DUPLICATE_COMPLETIONS = "workflow_duplicate_completions_total"

_INF = float("inf")
#: Upper bounds in seconds, from a no-op run to a day.
RUN_BUCKETS: tuple[float, ...] = (
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, _INF,
)  # fmt: skip
WAIT_BUCKETS: tuple[float, ...] = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800, 3600, _INF,
)  # fmt: skip


def bound_label(bound: float) -> str:
    """A bucket's upper bound as Prometheus writes it: ``"0.5"``, ``"60.0"``, ``"+Inf"``."""
    return "+Inf" if bound == _INF else repr(float(bound))


def bucket_label(bounds: tuple[float, ...], value: float) -> str:
    """Label ``le`` of the single bucket that ``value`` (seconds) falls in; below zero counts as zero."""
    return bound_label(bounds[bisect_left(bounds, max(value, 0.0))])
