"""What came of the runs that a bulk operation set going, and the pause when they fail again, one like the other."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.core.bulk import BulkState, BulkVerb, Outcome
from orchestrator.engine.db import Connection, put, rows
from orchestrator.engine.explain_words import error_text, label

#: So many in a row that fail alike pause the operation.
ALIKE = 5
#: Seconds between two looks, and how many runs are looked at.
_EVERY = 0.5
_LIMIT = 1000

_KNOWN = """
    SELECT i.id, r.workflow, r.cause, d.fingerprint, d.step, d.shard, d.error,
           r.state = 'failed' AND r.stopped_at >= i.at AS stopped_again
    FROM (SELECT id, run_id, at FROM workflow_bulk_items
          WHERE operation_id = %s AND outcome = 'awaited' ORDER BY position LIMIT %s) i
    LEFT JOIN workflow_runs r ON r.id = i.run_id
    LEFT JOIN LATERAL (
        SELECT fingerprint, step, shard, error, last_at FROM workflow_dead_letters d
        WHERE d.run_id = i.run_id AND d.state = 'open' AND d.last_at >= i.at ORDER BY d.last_at LIMIT 1) d ON true
    WHERE r.id IS NULL OR r.finished_at IS NOT NULL OR d.fingerprint IS NOT NULL
    ORDER BY coalesce(d.last_at, r.finished_at, i.at), i.id"""


def watch(conn: Connection, operation: Any) -> bool:
    """Notes what came of the runs since the last look; whether the operation has been paused. It is locked."""
    ended, again = [], []
    streak, kind, said = operation.streak, operation.streak_kind, ""
    for row in rows(conn, _KNOWN, [operation.id, _LIMIT]):
        failure = _failure(operation, row)
        if failure is None:
            ended.append(row.id)
            streak = 0 if streak < ALIKE else streak
            continue
        again.append(row.id)
        if streak < ALIKE:
            streak, kind, said = (streak + 1 if failure[0] == kind else 1), *failure
    for outcome, ids in ((Outcome.ENDED, ended), (Outcome.FAILED_AGAIN, again)):
        if ids:
            put(conn, "UPDATE workflow_bulk_items SET outcome = %s WHERE id = ANY(%s)", [outcome, ids])
    return _keep(conn, operation, streak, kind, said)


def note_failure(conn: Connection, operation: Any, detail: str) -> None:
    """An action itself failed: it counts in the row like a run that failed again."""
    streak = operation.streak + 1 if detail[:500] == operation.streak_kind else 1
    _keep(conn, operation, streak, detail[:500], detail)


def _failure(operation: Any, row: Any) -> tuple[str, str] | None:
    """What tells a failure from others and how it is said; None for a run that ended otherwise."""
    if row.fingerprint:
        error = json.loads(row.error) if isinstance(row.error, str) else row.error
        return row.fingerprint, f"{label(row.step, row.shard)}: {error_text(error) or 'no message'}"
    if row.stopped_again and operation.verb != BulkVerb.CANCEL:
        return f"{row.workflow} {row.cause}", f"{row.workflow} failed by {row.cause}"
    return None


def _keep(conn: Connection, operation: Any, streak: int, kind: str, said: str) -> bool:
    paused = streak >= ALIKE
    query = """
        UPDATE workflow_bulk_operations
        SET streak = %(streak)s, streak_kind = %(kind)s, watch_at = clock_timestamp() + %(every)s * interval '1 second',
            state = CASE WHEN %(paused)s THEN 'paused' ELSE state END,
            note = CASE WHEN %(paused)s THEN %(note)s ELSE note END
        WHERE id = %(id)s"""
    note = f"{streak} in a row failed in the same way ({said})" if paused else ""
    params = {
        "id": operation.id, "streak": streak, "kind": kind, "every": _EVERY, "paused": paused, "note": note,
    }  # fmt: skip
    put(conn, query, params)
    if paused:
        audit = """
            INSERT INTO workflow_audit (subject, action, before, after)
            VALUES (%s, 'bulk_pause', '{"state": "running"}', %s)"""
        after = json.dumps({"state": BulkState.PAUSED, "because": note})
        put(conn, audit, [f"bulk operation {operation.id}", after])
    return paused
