"""How long the steps of a workflow take, by version: what got slower with a new one.

From the latest runs of each version that ended well; a step's time goes from its first start to its last end, so
retries and the shards of a fan-out are in it, and waiting for a worker before it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.cache import cache
from django.db import connection

from orchestrator.engine.estimate import MIN_SAMPLE, WINDOW
from orchestrator.engine.find import TooBroad, patiently

#: Runs of each version that are looked at, seconds that looking may take, and that an answer is kept.
SAMPLE, PATIENCE, KEPT = 50, 2.0, 120

_TIMES = f"""
WITH newest AS MATERIALIZED (
    SELECT id, version, state, started_at, submitted_at, finished_at FROM workflow_runs
    WHERE workflow = %(workflow)s ORDER BY id DESC LIMIT {WINDOW}
), numbered AS (
    SELECT n.*, row_number() OVER (PARTITION BY version ORDER BY id DESC) AS place FROM newest n
    WHERE state = 'done' AND started_at IS NOT NULL AND version = ANY(%(versions)s)
), sample AS (
    SELECT * FROM numbered WHERE place <= {SAMPLE}
), spans AS (
    SELECT p.version, s.step, extract(epoch FROM max(s.finished_at) - min(s.first_started_at)) AS seconds
    FROM sample p JOIN workflow_steps s ON s.run_id = p.id
    WHERE s.kind = 'step' AND s.state = 'done' AND s.first_started_at IS NOT NULL GROUP BY p.id, p.version, s.step
    UNION ALL
    SELECT version, '', extract(epoch FROM finished_at - submitted_at) FROM sample
)
SELECT version, step, count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds)::float8,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds)::float8
FROM spans GROUP BY version, step
"""


@dataclass(frozen=True)
class Times:
    """Half and nineteen in twenty took no longer than ``p50`` and ``p95`` seconds, of ``sample`` runs."""

    sample: int
    p50: float
    p95: float


def times(workflow: str, versions: Sequence[int]) -> dict[tuple[int, str], Times] | None:
    """By version and step; the step ``""`` is the whole run, from submission to the end. One query, kept a while.

    Too few runs (under :data:`~orchestrator.engine.estimate.MIN_SAMPLE`) give no entry. None: it took too long.
    """
    key = f"step_times:{workflow}:{','.join(map(str, versions))}"
    kept: dict[tuple[int, str], Times] | None = cache.get(key)
    if kept is None:
        try:
            kept = patiently(lambda: _read(workflow, versions), PATIENCE)
        except TooBroad:
            return None
        cache.set(key, kept, KEPT)
    return kept


def _read(workflow: str, versions: Sequence[int]) -> dict[tuple[int, str], Times]:
    with connection.cursor() as cursor:
        cursor.execute(_TIMES, {"workflow": workflow, "versions": list(versions)})
        return {
            (version, step): Times(count, p50, p95)
            for version, step, count, p50, p95 in cursor.fetchall()
            if count >= MIN_SAMPLE
        }
