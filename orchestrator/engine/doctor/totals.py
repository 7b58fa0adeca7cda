"""Counters for the metrics: at least as many runs have ended as the record holds that have."""

from __future__ import annotations

from functools import partial
from typing import Any

from orchestrator.core import metric_names
from orchestrator.core.actor import Actor
from orchestrator.engine import history
from orchestrator.engine.db import Connection, in_transaction, rows
from orchestrator.engine.doctor.look import Broken, Scope, find
from orchestrator.engine.doctor.mend import note
from orchestrator.engine.history import Counters

# Runs that ended several times (retries) or were pruned make the counter higher, nothing makes it lower.
_COUNTERS = """
WITH counted AS (
    SELECT labels->>'workflow' AS workflow, labels->>'state' AS state, sum(value) AS n
    FROM (SELECT metric, labels, value FROM workflow_rollups
          UNION ALL SELECT metric, labels, value FROM workflow_rollup_deltas) c
    WHERE metric = %(metric)s GROUP BY 1, 2
), ended AS (
    SELECT workflow, state, count(*) AS n FROM workflow_runs
    WHERE state IN ('cancelled', 'done', 'failed') GROUP BY 1, 2
)
SELECT e.workflow, e.state, e.n, round(coalesce(c.n, 0))::bigint AS counted
FROM ended e LEFT JOIN counted c USING (workflow, state)
WHERE e.n > round(coalesce(c.n, 0))
ORDER BY 1, 2 LIMIT %(limit)s
"""


def counters(conn: Connection, scope: Scope) -> list[Broken]:
    """For each workflow and state the metrics count no fewer ended runs than there are in the record."""
    return [
        Broken(
            "counters",
            f"{row.workflow} {row.state}",
            f"{row.n} runs have ended so, the metrics count {row.counted}",
            partial(_recount, workflow=row.workflow, state=row.state),
        )
        for row in find(conn, scope, _COUNTERS, metric=metric_names.RUN_DURATION_BUCKET)
    ]


_NEWEST = """
SELECT greatest(extract(epoch FROM finished_at - submitted_at), 0)::float8 AS seconds, cause FROM workflow_runs
WHERE workflow = %s AND state = %s ORDER BY finished_at DESC LIMIT %s
"""


def _recount(conn: Connection, actor: Actor, workflow: str, state: str) -> str | None:
    """Appends what is missing, with the times of the runs that ended last; which were missed nobody knows."""

    def work() -> str | None:
        row: Any = next((r for r in _short(conn) if (r.workflow, r.state) == (workflow, state)), None)
        if row is None:
            return None
        counts: Counters = {}
        labels = {"workflow": workflow, "state": state}
        for run in rows(conn, _NEWEST, [workflow, state, row.n - row.counted]):
            bucket = metric_names.bucket_label(metric_names.RUN_BUCKETS, run.seconds)
            history.count(counts, metric_names.RUN_DURATION_BUCKET, {**labels, "le": bucket})
            history.count(counts, metric_names.RUN_DURATION_SUM, labels, run.seconds)
        history.append_counters(conn, counts)
        note(conn, actor, f"metrics of {workflow}", {"state": state, "counted": row.counted}, {"counted": row.n})
        return f"{row.n - row.counted} ended runs added to the metrics"

    return in_transaction(conn, work)


def _short(conn: Connection) -> list[Any]:
    return find(conn, Scope(limit=10_000), _COUNTERS, metric=metric_names.RUN_DURATION_BUCKET)
