"""What people do to runs: cancel, force, retry, and what each would do.

Each action checks the role, asks for a reason, looks at the present state under the run's lock, and leaves an audit
record with before and after, all in one transaction with what it changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict
from orchestrator.core.ids import no_such_run, parse_run_id
from orchestrator.core.states import RUN_TERMINAL, Cause, NodeState, RunState, StopReason
from orchestrator.engine import retry as retries
from orchestrator.engine import retry_preview, transitions
from orchestrator.engine.db import Connection, caller_transaction, notify, rows, sql
from orchestrator.engine.edit import Audit, RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import Plan, load_plan
from orchestrator.engine.retry import RetryPreview
from orchestrator.engine.unwind import end_hold, is_held, resolve


@dataclass(frozen=True)
class UndoItem:
    """A step or shard that a cancel would undo, and the compensation that does it."""

    step: str
    shard: str
    handler: str


@dataclass(frozen=True)
class CancelPreview:
    """What a cancel would do: ``undo`` in order, ``running`` rows to be stopped, started steps without an undo.

    ``skipped``: steps that will not be reached. ``children``: live child runs, which are cancelled too. ``remaining``:
    of a run that undoes already, the undos that come after those running.
    """

    undo: list[UndoItem]
    running: list[str]
    not_undoable: list[str]
    skipped: list[str] = field(default_factory=list)
    children: list[UUID] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)


def lock_run(conn: Connection, run_id: UUID | str) -> tuple[Any, Plan]:
    """The locked run and its plan.

    Raises:
        NotFound: there is no such run.
    """
    found = transitions.lock_runs(conn, [parse_run_id(run_id)])
    if not found:
        raise no_such_run(run_id)
    return found[0], load_plan(conn, found[0].definition_id)


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
        if is_held(row) and not force:
            _undo_held(conn, row, plan, actor, reason)
            return
        if row.stop and not force:
            doing = "undoing what it did" if row.state == RunState.COMPENSATING else "stopping"
            raise Conflict(f"run {row.id} is {doing} already; force ends what still runs")
        edit = RunEdit.of(row, plan)
        before = {"state": row.state, "step": row.current_step}
        edit.audits.append(Audit.of(actor, "force" if force else "cancel", reason, before, {"force": force}))
        edit.halt(StopReason.CANCEL, Cause.CANCELLED)
        transitions.note_cancel(conn, row.id, force)
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})
        notify(conn)


def _undo_held(conn: Connection, row: Any, plan: Plan, actor: Actor, reason: str) -> None:
    """A cancel of a held run is the decision not to retry it: the undo begins."""
    edit = RunEdit.of(row, plan)
    before = {"state": RunState.COMPENSATING, "held": True}
    edit.audits.append(Audit.of(actor, "cancel", reason, before, {"undo": "begun"}))
    transitions.note_cancel(conn, row.id, False)
    end_hold(conn, edit)
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
        _must_be_retriable(row)
        chosen = retries.choose(conn, row, plan, from_step, only)
        before = {"state": row.state, "cause": row.cause}
        after = {"state": RunState.RUNNING, "steps": len(chosen.items), "from_step": from_step}
        edit = retries.reopen(conn, row, plan, chosen)
        edit.audits.append(Audit.of(actor, "retry", reason, before, after))
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})
        notify(conn)


def _must_be_retriable(row: Any) -> None:
    if row.state not in (RunState.FAILED, RunState.CANCELLED) and not is_held(row):
        raise Conflict(f"run {row.id} is {row.state}; only a failed, cancelled or held run can be retried")


def preview_retry(run_id: UUID | str, from_step: str | None = None) -> RetryPreview:
    """What a retry would run again, what it would keep, and which calls to the outside it would make again.

    Changes nothing. Raises as :func:`retry_run`.
    """
    with caller_transaction() as conn:
        row, plan = lock_run(conn, run_id)
        _must_be_retriable(row)
        return retry_preview.preview(conn, row, plan, from_step)


_OPEN_ROWS = """
SELECT step, shard, kind, state FROM workflow_steps
WHERE run_id = %s AND (state = 'running' OR (kind = 'compensation' AND state IN ('pending', 'queued', 'waiting')))
ORDER BY id LIMIT 10000"""
_LIVE_CHILDREN = """
SELECT id FROM workflow_runs WHERE parent_run_id = %s AND state IN ('running', 'compensating') ORDER BY id LIMIT 1000"""


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
        open_rows = rows(conn, _OPEN_ROWS, [row.id])
        children = rows(conn, _LIVE_CHILDREN, [row.id])
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
    return CancelPreview(
        undo,
        [f"{r.step} {r.shard}".strip() for r in open_rows if r.state == "running"],
        bare,
        [node.id for node, letter in zip(plan.nodes, row.node_states, strict=False) if letter == NodeState.PENDING],
        [child.id for child in children],
        [f"{r.step} {r.shard}".strip() for r in open_rows if r.kind == "compensation" and r.state != "running"],
    )
