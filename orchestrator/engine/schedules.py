"""Schedules: runs that start by themselves, and what people do with them.

A tick is fired in one transaction that locks the schedule's row, submits the run and moves ``next_at`` on, so it
happens once whatever the number of dispatchers. Ticks that passed while none was there fire once, as the latest.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from django.db import transaction

from orchestrator.core.actor import Actor, require
from orchestrator.core.cron import due, fill_subject, next_tick
from orchestrator.core.errors import Conflict, NotFound, SwitchyardError
from orchestrator.engine import audit
from orchestrator.engine.db import Connection, caller_connection, in_transaction, put, rows
from orchestrator.engine.submit import submit_on
from orchestrator.models import Schedule

log = logging.getLogger("switchyard.schedules")
SCHEDULER = Actor("schedule", "operator")
_LIMIT = 200

_DUE = """
SELECT id FROM workflow_schedules s
WHERE NOT paused AND next_at <= now()
  AND NOT EXISTS (SELECT 1 FROM workflow_pauses p
                  WHERE p.kind = 'workflow' AND p.name = s.workflow AND p.until > now())
ORDER BY next_at LIMIT %s"""
# Looked at again under the lock: another dispatcher may have been first.
_TAKE = """
SELECT *, now() AS now FROM workflow_schedules
WHERE id = %s AND NOT paused AND next_at <= now() FOR UPDATE SKIP LOCKED"""
# A run of the schedule is known by its key, which nobody but the schedule gives. Index: workflow_runs_pinned.
_LIVE = """
SELECT id FROM workflow_runs
WHERE definition_id IN (SELECT id FROM workflow_definitions WHERE workflow = %(workflow)s)
  AND NOT (state IN ('cancelled', 'done', 'failed')) AND idempotency_key LIKE %(keys)s LIMIT 1"""
_MOVE = """
UPDATE workflow_schedules
SET next_at = %(next)s, last_at = CASE WHEN %(run)s::uuid IS NULL THEN last_at ELSE %(tick)s END,
    last_run_id = coalesce(%(run)s::uuid, last_run_id),
    missed = missed + %(missed)s, missed_at = CASE WHEN %(missed)s > 0 THEN now() ELSE missed_at END,
    skipped = skipped + %(skipped)s, skipped_at = CASE WHEN %(skipped)s > 0 THEN now() ELSE skipped_at END
WHERE id = %(id)s"""
_NOTE = "INSERT INTO workflow_audit (subject, action, after) VALUES (%s, 'schedule', %s::jsonb)"


def fire_due(conn: Connection, limit: int = _LIMIT) -> int:
    """Starts the runs of schedules whose time has come; returns how many schedules were looked after.

    Those of a paused workflow wait for its end, and then fire once. One that cannot be fired stops no other.
    """
    fired = 0
    for row in rows(conn, _DUE, [limit]):
        try:
            fired += in_transaction(conn, partial(_fire, conn, row.id))
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception:
            log.exception("schedule %s could not be fired; the next pass tries again", row.id)
    return fired


def _fire(conn: Connection, schedule_id: int) -> int:
    found = rows(conn, _TAKE, [schedule_id])
    if not found:
        return 0
    row = found[0]
    come = due(row.cron, row.timezone, row.next_at, row.now)
    told: dict[str, Any] = {}
    if come.come > 1:
        told["missed"] = come.come - 1
    run_id = None
    live = rows(conn, _LIVE, {"workflow": row.workflow, "keys": f"{_prefix(row.workflow)}%"})
    if live and row.overlap == "skip":
        told |= {"skipped": "the run of an earlier tick is live still", "run": str(live[0].id)}
    else:
        try:
            with conn.transaction():
                run_id = _submit(conn, row, come.tick, SCHEDULER, _prefix(row.workflow) + come.tick.isoformat())
        except SwitchyardError as refused:
            log.warning("the schedule of %s started no run: %s", row.workflow, refused.message)
            told["skipped"] = refused.message
    params = {"id": row.id, "next": come.following, "tick": come.tick, "run": run_id, "missed": come.come - 1,
              "skipped": int(run_id is None)}  # fmt: skip
    put(conn, _MOVE, params)
    if told:
        told |= {"tick": come.tick.isoformat(), **({"run": str(run_id)} if run_id else {})}
        put(conn, _NOTE, [_subject(row.workflow), json.dumps(told)])
    return 1


def _submit(conn: Connection, schedule: Any, tick: datetime, actor: Actor, key: str) -> UUID:
    run_id, _ = submit_on(
        conn,
        actor,
        workflow=schedule.workflow,
        subject_id=fill_subject(schedule.subject, tick, schedule.timezone),
        idempotency_key=key,
        labels={"schedule": schedule.workflow},
    )
    return run_id


def _prefix(workflow: str) -> str:
    """What the idempotency keys of a schedule's runs begin with."""
    return f"schedule:{workflow}:"


def _subject(workflow: str) -> str:
    return f"schedule {workflow}"


def pause_schedule(workflow: str, actor: Actor, reason: str) -> None:
    """From now on no tick fires until it is resumed; ticks that pass meanwhile are not made up for.

    Raises:
        NotAllowed: the actor is no admin. Invalid: no reason. NotFound: no such schedule. Conflict: paused already.
    """
    require(actor, "admin", reason)
    with transaction.atomic():
        row = _lock(workflow)
        if row.paused:
            raise Conflict(f"the schedule of {workflow} is paused already")
        row.paused, row.paused_by, row.paused_reason = True, actor.name, reason
        row.save(update_fields=["paused", "paused_by", "paused_reason"])
        _note(row, "pause", actor, reason, paused=True)


def resume_schedule(workflow: str, actor: Actor, reason: str) -> None:
    """Its next tick from now on fires again.

    Raises:
        NotAllowed, Invalid, NotFound: as :func:`pause_schedule`. Conflict: it is not paused.
    """
    require(actor, "admin", reason)
    with transaction.atomic():
        row = _lock(workflow)
        if not row.paused:
            raise Conflict(f"the schedule of {workflow} is not paused")
        row.paused, row.paused_by, row.paused_reason = False, "", ""
        row.next_at = next_tick(row.cron, row.timezone, _now())
        row.save(update_fields=["paused", "paused_by", "paused_reason", "next_at"])
        _note(row, "resume", actor, reason, paused=False)


def run_schedule_now(workflow: str, actor: Actor, reason: str) -> UUID:
    """Starts a run as a tick of this moment would, paused or not, and whatever the overlap; the run's id.

    Raises:
        NotAllowed, Invalid, NotFound: as :func:`pause_schedule`. Conflict: the workflow allows no further run now.
    """
    require(actor, "admin", reason)
    with transaction.atomic():
        row = _lock(workflow)
        now = _now()
        key = f"{_prefix(workflow)}{now.isoformat()}:by hand"
        run_id = _submit(caller_connection(), row, now.replace(microsecond=0), actor, key)
        Schedule.objects.filter(pk=row.pk).update(last_run=run_id)
        _note(row, "run_now", actor, reason, run=str(run_id))
    return run_id


def _lock(workflow: str) -> Schedule:
    row = Schedule.objects.select_for_update(no_key=True).filter(workflow=workflow).first()
    if row is None:
        raise NotFound(f"workflow {workflow!r} has no schedule; its definition gives it one", field="workflow")
    return row


def _note(row: Schedule, action: str, actor: Actor, reason: str, **after: Any) -> None:
    before = {"paused": not after["paused"]} if "paused" in after else None
    audit.note(_subject(row.workflow), action, actor, reason, before=before, after=after)


def _now() -> datetime:
    """All clocks are the database's."""
    now: datetime = rows(caller_connection(), "SELECT clock_timestamp() AS now")[0].now
    return now.astimezone(UTC)
