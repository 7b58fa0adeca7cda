"""How long things are kept: old runs with all that belongs to them, artifacts of runs that failed, ended leases.

Counters are never touched: what has been counted stays counted, whatever is pruned.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import errors

from orchestrator.core.actor import Actor
from orchestrator.engine.artifacts import artifact_store
from orchestrator.engine.db import Connection, in_transaction, put, rows

log = logging.getLogger("switchyard.retention")
DAY = 86_400.0
#: Artifacts of a run that did not end done are kept for so long.
FAILED_ARTIFACTS = 7 * DAY
ENDED_LEASES = DAY
BATCH = 200


@dataclass
class Pruned:
    """What a :func:`prune` deleted, or would delete. ``artifacts`` are files; a dry run cannot count them."""

    runs: int = 0
    steps: int = 0
    attempts: int = 0
    dead_letters: int = 0
    audit_records: int = 0
    artifacts: int = 0
    leases: int = 0

    def add(self, **counts: int) -> None:
        """Adds to the counts by name."""
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)


# Families go as a whole: a child when its parent is old enough too, and then children before their parents (the last
# condition of _LEAVES), so that no batch leaves a reference behind. Index: workflow_runs_finished.
_OLD = """
    r.state IN ('cancelled', 'done', 'failed') AND r.finished_at < %(before)s
    AND (r.parent_run_id IS NULL OR EXISTS (
        SELECT 1 FROM workflow_runs p WHERE p.id = r.parent_run_id
        AND p.state IN ('cancelled', 'done', 'failed') AND p.finished_at < %(before)s))
    AND NOT EXISTS (
        SELECT 1 FROM workflow_runs c WHERE c.parent_run_id = r.id
        AND NOT (c.state IN ('cancelled', 'done', 'failed') AND c.finished_at < %(before)s))
"""
_LEAVES = f"""
SELECT r.id FROM workflow_runs r
WHERE {_OLD} AND NOT EXISTS (SELECT 1 FROM workflow_runs c WHERE c.parent_run_id = r.id)
ORDER BY r.finished_at LIMIT %(limit)s FOR UPDATE OF r SKIP LOCKED
"""
_COUNT = f"""
WITH old AS (SELECT r.id FROM workflow_runs r WHERE {_OLD})
SELECT count(*) AS runs,
       (SELECT count(*) FROM old JOIN workflow_steps s ON s.run_id = old.id) AS steps,
       (SELECT count(*) FROM old JOIN workflow_attempts a ON a.run_id = old.id) AS attempts,
       (SELECT count(*) FROM old JOIN workflow_dead_letters d ON d.run_id = old.id) AS dead_letters,
       (SELECT count(*) FROM old JOIN workflow_audit u ON u.run_id = old.id) AS audit_records
FROM old
"""
#: In this order: what refers to a row goes before it. The names are fields of :class:`Pruned`.
_TABLES = (
    ("", "workflow_outbox"),
    ("attempts", "workflow_attempts"),
    ("dead_letters", "workflow_dead_letters"),
    ("audit_records", "workflow_audit"),
    ("", "workflow_fan_outs"),
    ("steps", "workflow_steps"),
)


def cutoff(conn: Connection, seconds: float) -> datetime:
    """The database's time so many seconds ago."""
    moment: datetime = rows(conn, "SELECT now() - %s * interval '1 second' AS at", [seconds])[0].at
    return moment


def prune(conn: Connection, older_than: float, actor: Actor, *, dry_run: bool = False, batch: int = BATCH) -> Pruned:
    """Deletes runs that ended more than ``older_than`` seconds ago, in batches, each with all its rows and artifacts.

    Also ends the retention of artifacts and leases (:func:`expire_artifacts`, :func:`forget_leases`). What is locked
    by somebody else at that moment stays for the next time.
    """
    before = cutoff(conn, older_than)
    pruned = Pruned()
    if dry_run:
        pruned.add(**rows(conn, _COUNT, {"before": before})[0]._asdict())
        return pruned
    while in_transaction(conn, lambda: _prune_batch(conn, before, batch, pruned)):
        log.info("%s runs pruned", pruned.runs)
    pruned.add(artifacts=expire_artifacts(conn), leases=forget_leases(conn))
    if any(asdict(pruned).values()):
        query = """
            INSERT INTO workflow_audit (subject, action, actor, role, reason, before, after)
            VALUES ('runs', 'prune', %s, %s, 'retention', %s::jsonb, %s::jsonb)"""
        ended = json.dumps({"ended_before": before.isoformat()})
        put(conn, query, [actor.name, actor.role, ended, json.dumps(asdict(pruned))])
    return pruned


def _prune_batch(conn: Connection, before: datetime, limit: int, pruned: Pruned) -> int:
    """The runs are locked before their artifacts go, so that nobody retries one meanwhile; rows go last.

    A crash in between leaves runs without artifacts, which the next prune takes, and never artifacts without a run.
    """
    ids = [row.id for row in rows(conn, _LEAVES, {"before": before, "limit": limit})]
    if not ids:
        return 0
    counts = {"runs": len(ids), "artifacts": sum(artifact_store().delete_prefix(run) for run in ids)}
    put(conn, "UPDATE workflow_schedules SET last_run_id = NULL WHERE last_run_id = ANY(%s)", [ids])
    for name, table in _TABLES:
        deleted = put(conn, f"DELETE FROM {table} WHERE run_id = ANY(%s)", [ids]).rowcount
        if name:
            counts[name] = deleted
    put(conn, "DELETE FROM workflow_runs WHERE id = ANY(%s)", [ids])
    pruned.add(**counts)
    return len(ids)


_MARK = "retention"
_EXPIRED = """
SELECT r.id, r.finished_at FROM workflow_runs r
WHERE r.state IN ('cancelled', 'done', 'failed') AND r.state <> 'done' AND r.finished_at < %(before)s
  AND (r.finished_at, r.id) > (%(after)s, %(last)s)
ORDER BY r.finished_at, r.id LIMIT %(limit)s
"""
_STILL = """
SELECT 1 AS one FROM workflow_runs
WHERE id = %s AND state IN ('failed', 'cancelled') AND finished_at = %s FOR NO KEY UPDATE
"""
_START = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def expire_artifacts(conn: Connection, older_than: float = FAILED_ARTIFACTS) -> int:
    """Deletes artifacts of runs that ended otherwise than done more than ``older_than`` seconds ago; how many files.

    Goes on where it left off the last time (a mark in ``workflow_beats``), so that each run is looked at once. Stops
    before a run that somebody holds locked, and comes back to it the next time.
    """
    before, files = cutoff(conn, older_than), 0
    after, last = _read_mark(conn)
    while found := rows(conn, _EXPIRED, {"before": before, "after": after, "last": last, "limit": BATCH}):
        for row in found:
            try:
                files += in_transaction(conn, partial(_expire, conn, row))
            except errors.LockNotAvailable:
                _write_mark(conn, after, last)
                return files
            after, last = row.finished_at, row.id
        _write_mark(conn, after, last)
    return files


def _expire(conn: Connection, run: Any) -> int:
    """Under the run's lock: a retry that came first keeps its artifacts."""
    put(conn, "SELECT set_config('lock_timeout', '2s', true)")
    return artifact_store().delete_prefix(run.id) if rows(conn, _STILL, [run.id, run.finished_at]) else 0


def _read_mark(conn: Connection) -> tuple[datetime, UUID]:
    query = """
        SELECT (detail->>'after')::timestamptz AS after, (detail->>'last')::uuid AS last
        FROM workflow_beats WHERE name = %s"""
    found = rows(conn, query, [_MARK])
    return (found[0].after, found[0].last) if found and found[0].last else (_START, UUID(int=0))


def _write_mark(conn: Connection, after: datetime, last: UUID) -> None:
    query = """
        INSERT INTO workflow_beats (name, holder, beat_at, expires_at, detail)
        VALUES (%s, '', now(), now(), jsonb_build_object('after', %s::timestamptz, 'last', %s::uuid))
        ON CONFLICT (name) DO UPDATE SET beat_at = now(), expires_at = now(), detail = excluded.detail"""
    put(conn, query, [_MARK, after, last])


def forget_leases(conn: Connection, older_than: float = ENDED_LEASES) -> int:
    """Deletes leases of worker processes that ended more than ``older_than`` seconds ago and hold nothing."""
    query = """
        DELETE FROM workflow_leases l WHERE l.ended_at < now() - %s * interval '1 second'
          AND NOT EXISTS (SELECT 1 FROM workflow_steps s WHERE s.lease_id = l.id AND s.state = 'running')"""
    return put(conn, query, [older_than]).rowcount
