"""Everything has a clock: leases are renewed, what is due is done, somebody dispatches."""

from __future__ import annotations

from typing import Any

from orchestrator.core.actor import Actor
from orchestrator.engine import children, recover, waits
from orchestrator.engine.db import Connection, put, rows
from orchestrator.engine.doctor.look import Broken, Scope, ago, find
from orchestrator.engine.doctor.mend import note

_CLAIMS = """
SELECT s.id, s.step, s.shard, s.worker, s.run_id,
       extract(epoch FROM now() - coalesce(l.ended_at, l.expires_at, s.started_at))::float8 AS since
FROM workflow_steps s
LEFT JOIN workflow_leases l ON l.id = s.lease_id
WHERE s.state = 'running' AND (%(run)s::uuid IS NULL OR s.run_id = %(run)s)
  AND coalesce(least(l.ended_at, l.expires_at), s.started_at, '-infinity') < now() - %(late)s * interval '1 second'
  AND (l.id IS NULL OR l.ended_at IS NOT NULL OR l.expires_at < now())
ORDER BY s.id LIMIT %(limit)s
"""


def claims(conn: Connection, scope: Scope) -> list[Broken]:
    """A running row is held by a worker process that is alive, or was until a moment ago."""
    return [
        Broken(
            "claims",
            str(row.id),
            f"{_name(row)} of run {row.run_id} runs in {row.worker or 'nobody'}, gone for {ago(row.since)}",
            _reap,
        )
        for row in find(conn, scope, _CLAIMS)
    ]


def _name(row: Any) -> str:
    return f"{row.step}[{row.shard}]" if row.shard else str(row.step)


_LEASES = """
SELECT l.id, l.name, l.host, extract(epoch FROM now() - l.expires_at)::float8 AS since
FROM workflow_leases l
WHERE l.ended_at IS NULL AND l.expires_at < now() - %(late)s * interval '1 second'
ORDER BY l.id LIMIT %(limit)s
"""


def leases(conn: Connection, scope: Scope) -> list[Broken]:
    """A worker process that no longer answers is not listed as one that works."""
    return [
        Broken("leases", str(row.id), f"worker process {row.name} on {row.host}: silent for {ago(row.since)}", _reap)
        for row in find(conn, scope, _LEASES)
    ]


def _reap(conn: Connection, actor: Actor) -> str | None:
    ended = "SELECT count(*) AS n FROM workflow_leases WHERE ended_at IS NULL AND expires_at < now()"
    gone: int = rows(conn, ended)[0].n
    closed = recover.reap_lost(conn)
    if not closed and not gone:
        return None
    note(conn, actor, "lost workers", {"leases": gone}, {"leases": 0, "attempts_closed": closed})
    return f"{closed} attempts of lost workers closed, {gone} leases ended"


_WAITS = """
SELECT s.id, s.step, s.shard, s.waiting_for, s.run_id, extract(epoch FROM now() - s.ready_at)::float8 AS since
FROM workflow_steps s
WHERE s.state = 'waiting'
  AND ((s.waiting_for IN ('retry', 'timer', 'approval') AND s.ready_at < now() - %(late)s * interval '1 second')
       OR (s.waiting_for IN ('retry', 'timer') AND s.ready_at IS NULL))
  AND (%(run)s::uuid IS NULL OR s.run_id = %(run)s)
ORDER BY s.ready_at LIMIT %(limit)s
"""
_JOINS = """
WITH {scope}
SELECT f.run_id, f.step, extract(epoch FROM now() - f.join_due_at)::float8 AS since
FROM scope r JOIN workflow_fan_outs f ON f.run_id = r.id
WHERE r.state = 'running' AND r.stop IS NULL AND f.open > 0
  AND f.join_due_at < now() - %(late)s * interval '1 second'
LIMIT %(limit)s
"""
_CHILDREN = """
SELECT s.id, s.run_id, s.step, s.shard, s.waiting_name IS NULL AS unmade
FROM workflow_steps s
JOIN workflow_runs r ON r.id = s.run_id
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(c.finished_at IS NULL), false) AS live, max(c.submitted_at) AS made,
           max(c.finished_at) AS ended
    FROM workflow_runs c WHERE c.parent_step_id = s.id
) k
WHERE s.state = 'waiting' AND s.waiting_for = 'children' AND (%(run)s::uuid IS NULL OR s.run_id = %(run)s)
  AND greatest(r.updated_at, k.made, k.ended) < now() - %(detect)s * interval '1 second'
  AND CASE WHEN s.waiting_name IS NULL THEN r.stop IS NULL ELSE NOT k.live END
LIMIT %(limit)s
"""
# A run may wait to start: for a time, for other runs to end, for its turn among runs that exclude one another. Who made
# room for it is not on record, so where a run of the workflow has just ended it is given its moment.
_RUNS_DUE = """
WITH {scope}, settled AS (SELECT now() - %(late)s * interval '1 second' AS at)
SELECT r.id, r.state,
       extract(epoch FROM now() - coalesce(r.hold_until, r.available_at, w.submitted_at))::float8 AS since
FROM settled t CROSS JOIN scope r JOIN workflow_runs w ON w.id = r.id
WHERE (r.state = 'compensating' AND r.compensation = 'pending' AND r.hold_until < t.at)
   OR (r.state = 'running' AND r.stop IS NULL AND r.started_at IS NULL AND r.pending = 0
       AND coalesce(r.available_at, w.submitted_at) < t.at
       AND NOT EXISTS (SELECT 1 FROM workflow_runs a
                       WHERE a.id = ANY(w.after_runs) AND coalesce(a.finished_at, now()) > t.at)
       AND NOT EXISTS (SELECT 1 FROM workflow_runs e WHERE e.exclusive_key = w.exclusive_key AND e.id < w.id)
       AND (w.exclusive_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM workflow_runs f
            WHERE f.state IN ('cancelled', 'done', 'failed') AND f.finished_at > t.at AND f.workflow = r.workflow)))
LIMIT %(limit)s
"""


def due(conn: Connection, scope: Scope) -> list[Broken]:
    """Retries, timers, approvals, joins, child runs, starts that were waited for, and ends of holds: all in time."""
    found = []
    for row in find(conn, scope, _WAITS):
        since = f"was due {ago(row.since)} ago" if row.since is not None else "has no due time"
        detail = f"{_name(row)} of run {row.run_id} waits for its {row.waiting_for}, which {since}"
        found.append(Broken("due", str(row.id), detail, _wake))
    for row in find(conn, scope, _JOINS):
        detail = f"the join of {row.step} was to go on {ago(row.since)} ago with what had completed"
        found.append(Broken("due", str(row.run_id), detail, _wake))
    for row in find(conn, scope, _CHILDREN):
        which = "which nobody has made" if row.unmade else "all of which have ended"
        found.append(Broken("due", str(row.id), f"{_name(row)} of run {row.run_id} waits for children, {which}", _wake))
    for row in find(conn, scope, _RUNS_DUE):
        what = "start" if row.state == "running" else "end of its hold"
        found.append(Broken("due", str(row.id), f"the run's {what} was due {ago(row.since)} ago", _wake))
    return found


def _wake(conn: Connection, actor: Actor) -> str | None:
    # A wait without a due time would never end: it is due now.
    query = """
        UPDATE workflow_steps SET ready_at = now()
        WHERE state IN ('waiting') AND waiting_for IN ('retry', 'timer') AND ready_at IS NULL"""
    put(conn, query)
    counts = {
        "retries": recover.wake_due(conn),
        "timers": waits.fire_due(conn),
        "joins": waits.expire_joins(conn),
        "children made": children.start(conn),
        "children joined": children.join(conn),
        "starts": recover.start_delayed(conn),
        "holds": recover.end_holds(conn),
    }
    if not any(counts.values()):
        return None
    note(conn, actor, "what was due", {"overdue": counts}, {"overdue": 0})
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n) + " done"


# A dispatcher that nobody needs may be away; when something has waited for it, it may not.
_DISPATCHER = """
SELECT extract(epoch FROM now() - b.beat_at)::float8 AS since,
       (SELECT extract(epoch FROM now() - min(r.submitted_at))::float8 FROM workflow_runs r
        WHERE r.state = ANY(%(live)s) AND coalesce(r.started_at, r.available_at) < now()) AS waited
FROM (SELECT max(beat_at) AS beat_at FROM workflow_beats WHERE name = 'dispatcher') b
"""


def dispatcher(conn: Connection, scope: Scope) -> list[Broken]:
    """A dispatcher was seen lately while there are live runs."""
    row = find(conn, scope, _DISPATCHER)[0]
    limit = scope.params["detect"]
    if row.waited is None or row.waited <= limit or (row.since is not None and row.since <= limit):
        return []
    seen = "was never seen" if row.since is None else f"was last seen {ago(row.since)} ago"
    return [Broken("dispatcher", "", f"no dispatcher: it {seen}, and live runs need one; start it")]
