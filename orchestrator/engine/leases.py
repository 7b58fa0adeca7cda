"""Leases of worker processes, and closing what a process that died had in hand. For the supervisor of workers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from orchestrator.core.lifecycle import after_failure
from orchestrator.core.states import Cause, RunState, StepState, StopReason
from orchestrator.engine import history, transitions
from orchestrator.engine.db import Connection, in_transaction, put, rows, sql
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import load_plan, retry_delay
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.transitions import Closure
from orchestrator.engine.unwind import resolve

Fence = tuple[int, int, int]


def register(conn: Connection, token: UUID, name: str, queues: Sequence[str]) -> int:
    """A lease for a process about to start; its id."""
    query = """
        INSERT INTO workflow_leases (token, name, host, pid, queues, workflows, expires_at)
        VALUES (%s, %s, %s, %s, %s, %s, now() + %s * interval '1 second') RETURNING id"""
    conf = settings.ORCHESTRATOR
    params = [
        token,
        name,
        socket.gethostname(),
        os.getpid(),
        list(queues),
        ":".join(conf.workflows),
        conf.lease_seconds,
    ]
    lease_id: int = rows(conn, query, params)[0].id
    return lease_id


def set_pid(conn: Connection, lease_id: int, pid: int) -> None:
    """Notes the process behind a lease."""
    put(conn, "UPDATE workflow_leases SET pid = %s WHERE id = %s", [pid, lease_id])


def renew(conn: Connection, lease_ids: Sequence[int]) -> set[int]:
    """Heartbeat; the ids whose lease still holds."""
    params = {"leases": list(lease_ids), "seconds": settings.ORCHESTRATOR.lease_seconds}
    return {row.id for row in rows(conn, sql("renew_leases"), params)}


def end(conn: Connection, lease_id: int) -> None:
    """The process is gone."""
    put(conn, "UPDATE workflow_leases SET ended_at = now() WHERE id = %s AND ended_at IS NULL", [lease_id])


def give_back(conn: Connection, fences: Sequence[Fence]) -> int:
    """Queues again what was claimed and never begun, with tickets; no attempt is spent. Returns how many rows.

    In a run that was stopped meanwhile they are closed like all others that had not started.
    """

    def work() -> int:
        query = "SELECT DISTINCT run_id FROM workflow_steps WHERE id = ANY(%s)"
        found = rows(conn, query, [[step_id for step_id, _, _ in fences]])
        runs = {run.id: run for run in transitions.lock_runs(conn, [r.run_id for r in found])}
        back = transitions.give_back(conn, fences)
        tickets = {(r.run_id, runs[r.run_id].definition_id, r.step, r.queue, 1, r.gated) for r in back}
        history.insert_outbox(conn, list(tickets))
        for run in runs.values():
            if run.stop and run.state == RunState.RUNNING:
                edit = RunEdit.of(run, load_plan(conn, run.definition_id))
                edit.stop = StopReason(run.stop)
                resolve(conn, edit, reader(conn))
                transitions.write(conn, [edit], None, {})
        return len(back)

    return in_transaction(conn, work) if fences else 0


def give_back_held(conn: Connection, lease_id: int, but: Collection[int] = ()) -> int:
    """Gives back what a lease holds although its process has nothing in hand: the answer to a claim was lost.

    ``but``: rows that have begun and cannot be closed; they are left to the sweep, as if the process were gone.
    """
    transitions.disown_claims(conn, list(but), lease_id)
    query = "SELECT id, attempt, token FROM workflow_steps WHERE lease_id = %s AND state = 'running'"
    return give_back(conn, [(r.id, r.attempt, r.token) for r in rows(conn, query, [lease_id])])


_SELECT = """
SELECT s.id, s.run_id, s.step, s.kind, s.attempt, s.max_attempts, s.token, r.definition_id
FROM workflow_steps s JOIN workflow_runs r ON r.id = s.run_id
WHERE s.id = %s AND s.attempt = %s AND s.token = %s AND s.state = 'running'
"""


def close_begun(conn: Connection, fence: Fence, cause: Cause, worker: str) -> int:
    """Closes an attempt that its process had begun and did not live to end; 0 where it is closed already."""
    found = rows(conn, _SELECT, list(fence))
    return close_attempts(conn, [_closure(conn, found[0], cause, worker)]).changed if found else 0


_MESSAGES = {
    Cause.WORKER_LOST: ("WorkerLost", "worker process {worker} was killed or crashed while it ran this attempt"),
    Cause.TIMEOUT: ("Timeout", "no end within {timeout:g} s, its timeout; worker process {worker} was killed"),
    Cause.CANCELLED: ("Cancelled", "the handler did not stop when asked to; worker process {worker} was killed"),
}


def _closure(conn: Connection, row: Any, cause: Cause, worker: str) -> Closure:
    spec = load_plan(conn, row.definition_id).work_spec(row.kind, row.step)
    kind, text = _MESSAGES[cause]
    error = json.dumps({"type": kind, "message": text.format(worker=worker, timeout=spec.timeout)})
    if cause is Cause.CANCELLED:
        # Of a compensation only force gets here, and its undo has failed; of a step the run's stop says which.
        state = StepState.FAILED if row.kind == "compensation" else StepState.CANCELLED
        return Closure(row.run_id, row.id, row.attempt, row.token, state, cause, None, error=error)
    delay = retry_delay(spec, row.attempt, row.max_attempts)
    ending = after_failure(cause, row.attempt, row.max_attempts, delay)
    return Closure(row.run_id, row.id, row.attempt, row.token, ending.state, ending.cause, ending.delay, error=error)


def stops_of(conn: Connection, step_ids: Sequence[int]) -> list[Any]:
    """Of these running rows, those that are to stop: (id, stop, seconds since, forced)."""
    query = """
        SELECT s.id, r.stop,
               extract(epoch FROM clock_timestamp() - CASE r.stop WHEN 'failure' THEN r.deadline_missed_at
                                                                  ELSE r.stopped_at END)::float8 AS seconds,
               coalesce(r.force_at > s.started_at, false) AS forced
        FROM workflow_steps s JOIN workflow_runs r ON r.id = s.run_id
        WHERE s.id = ANY(%s) AND s.state = 'running'
          AND ((s.kind = 'step' AND (r.stop IN ('cancel', 'deadline')
                                     OR (r.stop = 'failure' AND r.on_deadline = 'fail'
                                         AND r.deadline_missed_at IS NOT NULL)))
               OR r.force_at > s.started_at)"""
    return rows(conn, query, [list(step_ids)])
