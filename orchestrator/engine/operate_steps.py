"""What people decide about single steps: approve, reject, skip."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.core.actor import Actor, allows, require
from orchestrator.core.errors import Conflict, NotAllowed, NotFound
from orchestrator.core.states import Cause, StepState, WaitingFor
from orchestrator.engine.claims import End
from orchestrator.engine.db import Connection, caller_transaction, notify, rows
from orchestrator.engine.edit import Audit, RunEdit
from orchestrator.engine.operate_runs import lock_run
from orchestrator.engine.waits import end_rows

_ROW = """
SELECT id, run_id, step, shard, kind, state, waiting_for, waiting_name FROM workflow_steps WHERE id = %s
"""


def approve_step(step_id: int, actor: Actor, reason: str) -> None:
    """Gives an approval that a run waits for. Only its group, or an admin.

    Raises:
        NotFound, NotAllowed, Invalid: no such step, neither in the group nor admin, no reason.
        Conflict: the step does not wait for an approval.
    """
    output = json.dumps({"approved_by": actor.spoken, "reason": reason.strip()}, ensure_ascii=False)
    _answer(step_id, actor, reason, "approve", End(step_id, StepState.DONE, output=output))


def reject_step(step_id: int, actor: Actor, reason: str) -> None:
    """Refuses an approval: the step has failed, with the reason as its error. Raises as :func:`approve_step`."""
    message = f"rejected by {actor.spoken}: {reason.strip()}"
    error = json.dumps({"type": "Rejected", "message": message}, ensure_ascii=False)
    _answer(step_id, actor, reason, "reject", End(step_id, StepState.FAILED, Cause.ERROR, error))


def may_answer(actor: Actor, group: str | None) -> bool:
    """Whether the actor may give or refuse an approval that waits for ``group``: its members, and admins."""
    return allows(actor.role, "admin") or (allows(actor.role, "operator") and (not group or group in actor.groups))


def _answer(step_id: int, actor: Actor, reason: str, action: str, end: End) -> None:
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        edit, row = _locked(conn, step_id)
        if not may_answer(actor, row.waiting_name):
            raise NotAllowed(
                f"{actor.name} is not in the group {row.waiting_name}, which alone may answer this approval"
            )
        if row.state != StepState.WAITING or row.waiting_for != WaitingFor.APPROVAL or edit.stopping:
            raise Conflict(f"step {_name(row)} is {row.state}; it does not wait for an approval")
        record = Audit.of(actor, action, reason, _told(row), {"state": end.state})
        _end(conn, edit, row, end, record, WaitingFor.APPROVAL)


def can_be_skipped(kind: str, state: str) -> bool:
    """Whether a row may be skipped: a step or shard, not an undo, that has not begun or waits."""
    return kind == "step" and state in (StepState.WAITING, StepState.QUEUED, StepState.PENDING)


def skip_step(step_id: int, actor: Actor, reason: str) -> None:
    """Skips a step or shard that waits or is queued: it counts as skipped and what comes behind it may start.

    Raises:
        NotFound, NotAllowed, Invalid: no such step, role below operator, no reason.
        Conflict: it runs, has ended, or is an undo.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        edit, row = _locked(conn, step_id)
        if not can_be_skipped(row.kind, row.state) or edit.stopping:
            raise Conflict(f"step {_name(row)} is {row.state}; only a step that waits or is queued can be skipped")
        record = Audit.of(actor, "skip", reason, _told(row), {"state": StepState.SKIPPED})
        _end(conn, edit, row, End(step_id, StepState.SKIPPED), record, None)


def _locked(conn: Connection, step_id: int) -> tuple[RunEdit, Any]:
    """The edit of the row's locked run, and the row as it is under that lock."""
    found = rows(conn, _ROW, [step_id])
    if not found:
        raise NotFound(f"there is no step {step_id}")
    run, plan = lock_run(conn, found[0].run_id)
    return RunEdit.of(run, plan), rows(conn, _ROW, [step_id])[0]


def _end(conn: Connection, edit: RunEdit, row: Any, end: End, record: Audit, waits: str | None) -> None:
    edit.audits.append(record)
    was = (StepState.WAITING,) if waits else (StepState.WAITING, StepState.QUEUED, StepState.PENDING)
    if not end_rows(conn, edit, [end], waits, was):
        raise Conflict(f"step {_name(row)} has just changed; look again")
    notify(conn)


def _name(row: Any) -> str:
    return f"{row.step} {row.shard}".strip()


def _told(row: Any) -> dict[str, Any]:
    return {"step": row.step, "shard": row.shard, "state": row.state}
