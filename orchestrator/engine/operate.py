"""What people do to runs. Every face (pages, admin, API, command line) acts through here and nowhere else.

Each action checks the role, asks for a reason, looks at the present state under the run's lock, and leaves an audit
record with before and after, all in one transaction with what it changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.states import RUN_TERMINAL, Cause, DeadLetterState, RunState, StopReason
from orchestrator.engine import history, transitions
from orchestrator.engine import retry as retries
from orchestrator.engine.db import Connection, caller_transaction, notify, rows, sql
from orchestrator.engine.edit import Audit, RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import Plan, load_plan
from orchestrator.engine.retry import RetryPreview
from orchestrator.engine.unwind import resolve

__all__ = [
    "Actor", "CancelPreview", "RetryPreview", "UndoItem", "cancel_run", "discard_dead_letter", "preview_cancel",
    "preview_retry", "replay_dead_letter", "retry_run",
]  # fmt: skip


@dataclass(frozen=True)
class UndoItem:
    """A step or shard that a cancel would undo, and the compensation that does it."""

    step: str
    shard: str
    handler: str


@dataclass(frozen=True)
class CancelPreview:
    """What a cancel would do: ``undo`` in order, ``running`` rows to be stopped, started steps without an undo."""

    undo: list[UndoItem]
    running: list[str]
    not_undoable: list[str]


def lock_run(conn: Connection, run_id: UUID | str) -> tuple[Any, Plan]:
    """The locked run and its plan.

    Raises:
        NotFound: there is no such run.
    """
    found = transitions.lock_runs(conn, [_uuid(run_id)])
    if not found:
        raise NotFound(f"there is no run {run_id}; it may never have arrived, or is older than the retention")
    return found[0], load_plan(conn, found[0].definition_id)


def _uuid(run_id: UUID | str) -> UUID:
    try:
        return run_id if isinstance(run_id, UUID) else UUID(str(run_id))
    except ValueError:
        raise NotFound(f"{str(run_id)[:80]!r} is not a run id") from None


def cancel_run(run_id: UUID | str, actor: Actor, reason: str, *, force: bool = False) -> None:
    """Cancels a run: nothing new starts, running attempts are told (``force``: killed), what was done is undone.

    While a run is compensating, ``force`` ends the undo that runs now, recorded failed.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below operator, no reason.
        Conflict: the run has ended, or a cancel is under way already and this one is not forced.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        row, plan = lock_run(conn, run_id)
        if row.state in RUN_TERMINAL:
            raise Conflict(f"run {row.id} is {row.state} already; there is nothing to cancel")
        if row.stop and not force:
            doing = "undoing what it did" if row.state == RunState.COMPENSATING else "stopping"
            raise Conflict(f"run {row.id} is {doing} already; force ends what still runs")
        edit = RunEdit.of(row, plan)
        action = "force" if force else "cancel"
        before = json.dumps({"state": row.state, "step": row.current_step})
        edit.audits.append(Audit(action, before, json.dumps({"force": force}), actor.name, actor.role, reason.strip()))
        edit.halt(StopReason.CANCEL, Cause.CANCELLED)
        transitions.note_cancel(conn, row.id, force)
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})
        notify(conn)


def retry_run(
    run_id: UUID | str, actor: Actor, reason: str, *, from_step: str | None = None, only: list[int] | None = None
) -> None:
    """The same run goes on: failed, cancelled, blocked and undone steps run again, the others keep their results.

    ``from_step``: that step and all behind it too; ``"*"``: everything. ``only``: of the rows that failed just these.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below operator, no reason or no such step.
        Conflict: the run is not failed or cancelled.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        row, plan = lock_run(conn, run_id)
        if row.state not in (RunState.FAILED, RunState.CANCELLED):
            raise Conflict(f"run {row.id} is {row.state}; only a failed or cancelled run can be retried")
        chosen = retries.choose(conn, row, plan, from_step, only)
        audit = Audit(
            "retry",
            json.dumps({"state": row.state, "cause": row.cause}),
            json.dumps({"state": "running", "steps": len(chosen.items), "from_step": from_step}),
            actor.name,
            actor.role,
            reason.strip(),
        )
        edit = retries.reopen(conn, row, plan, chosen)
        edit.audits.append(audit)
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})
        notify(conn)


def preview_retry(run_id: UUID | str, from_step: str | None = None) -> RetryPreview:
    """What a retry would run again and what it would keep. Changes nothing. Raises as :func:`retry_run`."""
    with caller_transaction() as conn:
        row, plan = lock_run(conn, run_id)
        if row.state not in (RunState.FAILED, RunState.CANCELLED):
            raise Conflict(f"run {row.id} is {row.state}; only a failed or cancelled run can be retried")
        chosen = retries.choose(conn, row, plan, from_step, None)
        return RetryPreview(chosen.items, chosen.kept)


def preview_cancel(run_id: UUID | str, force: bool = False) -> CancelPreview:
    """What a cancel would undo and stop. Changes nothing.

    Raises:
        NotFound: there is no such run.
        Conflict: the run has ended.
    """
    with caller_transaction() as conn:
        row, plan = lock_run(conn, run_id)
        if row.state in RUN_TERMINAL:
            raise Conflict(f"run {row.id} is {row.state} already; there is nothing to cancel")
        started = rows(conn, sql("select_started"), {"run": row.id})
        running = rows(
            conn, "SELECT step, shard FROM workflow_steps WHERE run_id = %s AND state = 'running' ORDER BY id", [row.id]
        )
    undo, bare = [], []
    for item in started:
        spec = plan.by_id[item.step].spec.compensate
        if spec:
            undo.append(UndoItem(item.step, item.shard, spec.handler))
        elif item.step not in bare:
            bare.append(item.step)
    if started:
        undo.extend(UndoItem(", ".join(e.undoes), "", e.handler) for e in plan.spec.on_failure.compensate)
        covered = {step for e in plan.spec.on_failure.compensate for step in e.undoes}
        bare = [step for step in bare if step not in covered]
    return CancelPreview(undo, [f"{r.step} {r.shard}".strip() for r in running], bare)


def _open_letter(conn: Connection, letter_id: int) -> Any:
    query = """
        SELECT d.id, d.run_id, d.step_row_id, d.state, d.step, d.shard, s.kind
        FROM workflow_dead_letters d JOIN workflow_steps s ON s.id = d.step_row_id WHERE d.id = %s FOR UPDATE OF d"""
    found = rows(conn, query, [letter_id])
    if not found:
        raise NotFound(f"there is no dead letter {letter_id}")
    if found[0].state != DeadLetterState.OPEN:
        raise Conflict(f"dead letter {letter_id} is {found[0].state} already")
    return found[0]


def replay_dead_letter(letter_id: int, actor: Actor, reason: str) -> None:
    """Retries the run for this one row: it runs again with a fresh budget, and what it blocked after it.

    Raises:
        NotFound, NotAllowed, Invalid, Conflict: as :func:`retry_run`; also when the letter is not open.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        found = rows(conn, "SELECT run_id FROM workflow_dead_letters WHERE id = %s", [letter_id])
        if not found:
            raise NotFound(f"there is no dead letter {letter_id}")
        lock_run(conn, found[0].run_id)
        letter = _open_letter(conn, letter_id)
        if letter.kind == "compensation":
            raise Conflict(
                "replaying an undo alone is not built yet in this version; retry the run, which runs the step again"
            )
        retry_run(letter.run_id, actor, reason, only=[letter.step_row_id])


def discard_dead_letter(letter_id: int, actor: Actor, reason: str) -> None:
    """Closes a dead letter without running anything. The run stays as it is.

    Raises:
        NotFound, NotAllowed, Invalid: no such letter, role below operator, no reason.
        Conflict: the letter is not open.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        letter = _open_letter(conn, letter_id)
        history.close_dead_letters(conn, [letter.step_row_id], DeadLetterState.DISCARDED, reason.strip())
        record = Audit(
            "discard",
            json.dumps({"dead_letter": letter.id, "step": letter.step, "shard": letter.shard, "state": "open"}),
            json.dumps({"state": "discarded"}),
            actor.name,
            actor.role,
            reason.strip(),
        )
        history.insert_audit(conn, [(letter.run_id, record)])
