"""What the passing of time changes: lost workers, due retries and timers, delayed runs, deadlines.

Level-triggered: each pass looks at what the rows say now and takes a limited number; what one pass misses the next one
takes, and one bad row never stops a pass. Every action is guarded by itself, so any number of dispatchers may run them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from orchestrator.core.lifecycle import after_failure
from orchestrator.core.states import Cause, StopReason
from orchestrator.engine import history, transitions
from orchestrator.engine.db import Connection, in_transaction, put, rows, sql
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.history import Counters
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import load_plan
from orchestrator.engine.settle import close_attempts, note_missed_deadline
from orchestrator.engine.submit import begin
from orchestrator.engine.transitions import Closure
from orchestrator.engine.unwind import end_hold, is_held, resolve

log = logging.getLogger("switchyard.recover")
LIMIT = 500


def reap_lost(conn: Connection, limit: int = LIMIT) -> int:
    """Closes running attempts whose worker process holds no live lease; returns how many."""
    found = rows(conn, sql("select_lost"), {"limit": limit})
    closed = 0
    for closure in map(_lost_closure, found):
        closed += safely(closure.run_id, partial(_close, conn, closure))
    if found:
        log.warning("%s attempts of lost workers closed", closed)
    put(conn, "UPDATE workflow_leases SET ended_at = now() WHERE ended_at IS NULL AND expires_at < now()")
    return closed


def _close(conn: Connection, closure: Closure) -> int:
    return close_attempts(conn, [closure]).changed


def _lost_closure(row: Any) -> Closure:
    """The end of an attempt (a row of sql/select_lost) whose worker did not live to tell it."""
    message = f"worker {row.worker} stopped answering while it ran this attempt (process killed, host lost or paused)"
    error = json.dumps({"type": "WorkerLost", "message": message})
    ending = after_failure(Cause.WORKER_LOST, row.attempt, row.max_attempts, 0.0)
    return Closure(row.run_id, row.id, row.attempt, row.token, ending.state, ending.cause, ending.delay, error=error)


def wake_due(conn: Connection, limit: int = LIMIT) -> int:
    """Queues steps whose retry is due and puts their tickets out; returns how many."""

    def work() -> int:
        woken = transitions.wake_due(conn, limit)
        tickets = Counter((r.run_id, r.definition_id, r.step, r.queue, r.gated) for r in woken)
        history.insert_outbox(conn, [(*key[:4], n, key[4]) for key, n in tickets.items()])
        return len(woken)

    return in_transaction(conn, work)


def start_delayed(conn: Connection, limit: int = LIMIT) -> int:
    """Starts delayed runs whose time has come; returns how many."""

    def work() -> int:
        due = transitions.start_delayed(conn, limit)
        for row in due:
            begin(conn, RunEdit.of(row, load_plan(conn, row.definition_id)))
        return len(due)

    return in_transaction(conn, work)


def enforce_deadlines(conn: Connection, limit: int = LIMIT) -> int:
    """Stops runs that are past their deadline, or notes it where the definition only alerts; returns how many."""
    query = """
        SELECT id FROM workflow_runs
        WHERE state = 'running' AND deadline_at < now() AND deadline_missed_at IS NULL
        ORDER BY deadline_at LIMIT %s"""
    return sum(safely(r.id, partial(_miss_deadline, conn, r.id)) for r in rows(conn, query, [limit]))


def _miss_deadline(conn: Connection, run_id: UUID) -> int:
    def work() -> int:
        edit = lock_edit(conn, run_id)
        counts: Counters = {}
        if edit is None or not note_missed_deadline(conn, edit, counts):
            return 0
        if edit.row.on_deadline == "alert":
            history.insert_alerts(conn, [(run_id, "deadline", edit.row.retries)])
        else:
            edit.halt(StopReason.DEADLINE, Cause.DEADLINE)
            resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, counts)
        return 1

    return in_transaction(conn, work)


def end_holds(conn: Connection, limit: int = LIMIT) -> int:
    """Begins the undo of held runs whose time for an operator is up; returns how many."""
    query = """
        SELECT id FROM workflow_runs
        WHERE stop IS NOT NULL AND state = 'compensating' AND compensation = 'pending' AND hold_until <= now()
        LIMIT %s"""
    return sum(safely(r.id, partial(_end_hold, conn, r.id)) for r in rows(conn, query, [limit]))


def _end_hold(conn: Connection, run_id: UUID) -> int:
    def work() -> int:
        edit = lock_edit(conn, run_id)
        if edit is None or not is_held(edit.row):
            return 0
        end_hold(conn, edit)
        transitions.write(conn, [edit], None, {})
        return 1

    return in_transaction(conn, work)


def lock_edit(conn: Connection, run_id: UUID) -> RunEdit | None:
    """An edit of the locked run; None when it is gone."""
    found = transitions.lock_runs(conn, [run_id])
    return RunEdit.of(found[0], load_plan(conn, found[0].definition_id)) if found else None


def safely(run_id: UUID, work: Callable[[], int]) -> int:
    """One bad run does not stop a pass; a broken connection does, and the next pass takes up what was missed."""
    try:
        return work()
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise
    except Exception:
        log.exception("run %s could not be taken further; the next pass tries again", run_id)
        return 0
