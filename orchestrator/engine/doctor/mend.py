"""Mending a run: its counters and letters from its rows, then on from there as the engine itself would go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.conf import settings

from orchestrator.core.actor import Actor
from orchestrator.core.states import NODE_SATISFIED, NODE_TERMINAL, Cause, NodeState, RunState, StepState, StopReason
from orchestrator.engine import transitions, unwind
from orchestrator.engine.advance import MAX_TICKETS, open_ready
from orchestrator.engine.closing import run_error
from orchestrator.engine.db import Connection, in_transaction, put, rows
from orchestrator.engine.edit import Audit, NewStep, RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import Node, load_plan

REASON = "doctor --repair"
_COUNTS = """
SELECT step, kind, count(*) AS n,
       count(*) FILTER (WHERE state = 'pending') AS pending,
       count(*) FILTER (WHERE state IN ('queued', 'running', 'waiting')) AS moving,
       count(*) FILTER (WHERE state = 'done') AS done,
       count(*) FILTER (WHERE state = 'skipped') AS skipped,
       count(*) FILTER (WHERE state = 'skipped' AND cause = 'blocked') AS blocked,
       count(*) FILTER (WHERE state IN ('failed', 'rejected')) AS failed,
       count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
       max(cause) FILTER (WHERE state IN ('failed', 'rejected')) AS cause,
       max(error::text) FILTER (WHERE state IN ('failed', 'rejected')) AS error
FROM workflow_steps WHERE run_id = %s GROUP BY step, kind
"""


def on_run(conn: Connection, actor: Actor, run_id: UUID, change: Callable[[RunEdit], bool]) -> str | None:
    """Changes one run under its lock and notes the repair with what the run row said before and says after.

    ``change`` answers False where there is nothing to do any more.
    """

    def work() -> str | None:
        found = transitions.lock_runs(conn, [run_id])
        if not found:
            return None
        edit = RunEdit.of(found[0], load_plan(conn, found[0].definition_id))
        before = _summary(edit.row.state, edit.row.pending, edit.row.node_states, edit.row.compensation)
        if not change(edit):
            return None
        undo = edit.compensation or edit.row.compensation
        after = _summary(edit.now_state, edit.open_rows, "".join(edit.nodes), undo)
        edit.audits.insert(0, Audit.of(actor, "repair", REASON, before, after))
        transitions.write(conn, [edit], None, {})
        changed = [f"{name} {before[name]} -> {after[name]}" for name in before if before[name] != after[name]]
        return "; ".join(changed) or "counted again, nothing else to change"

    return in_transaction(conn, work)


def _summary(state: str, pending: int, node_states: str, compensation: str | None) -> dict[str, Any]:
    return {"state": str(state), "pending": pending, "node_states": node_states, "compensation": compensation}


def mend_run(conn: Connection, actor: Actor, run_id: UUID) -> str | None:
    """Counters, letters and, where nothing moves any more, the next step of a run, all worked out from its rows."""
    return on_run(conn, actor, run_id, lambda edit: _mend(conn, edit))


def _mend(conn: Connection, edit: RunEdit) -> bool:
    transitions.repair(conn, edit.id)
    edit.row = transitions.lock_runs(conn, [edit.id])[0]
    found = rows(conn, _COUNTS, [edit.id])
    counts = {row.step: row for row in found if row.kind == "step"}
    edit.delta += sum(row.pending + row.moving for row in found) - edit.row.pending
    old = list(edit.nodes)
    edit.nodes = [
        _letter(edit, node, counts.get(node.id), old[node.index] if node.index < len(old) else NodeState.PENDING)
        for node in edit.plan.nodes
    ]
    if edit.now_state is RunState.RUNNING:
        _go_on(conn, edit, counts)
    elif edit.now_state is RunState.COMPENSATING:
        _write_blocked(edit, counts)
        _undo_on(conn, edit, [row for row in found if row.kind != "step"])
    else:
        _write_blocked(edit, counts)
    return True


def _letter(edit: RunEdit, node: Node, row: Any, old: str) -> str:
    """The letter of a step from the counts of its rows, as ``advance`` and ``unwind`` would have set it."""
    stopped = edit.now_state is not RunState.RUNNING
    if row is None:
        if stopped and edit.now_state is not RunState.DONE:
            return NodeState.BLOCKED
        return old if stopped else NodeState.PENDING
    if row.moving or row.pending:
        waits = row.pending == row.n or old == NodeState.PENDING
        return NodeState.PENDING if not row.moving and waits and edit.row.retries else NodeState.ACTIVE
    if old in NODE_TERMINAL and _agrees(node, row, old):
        return old
    return _final_letter(node, row, stopped or bool(edit.row.stop))


def _agrees(node: Node, row: Any, letter: str) -> bool:
    """Whether rows that have all ended allow this letter."""
    agrees: dict[str, bool] = {
        NodeState.DONE: row.done > 0 or node.spec.join.mode != "all" or node.spec.join_timeout is not None,
        NodeState.SKIPPED: row.skipped == row.n > row.blocked,
        NodeState.FAILED: row.failed > 0,
        NodeState.CANCELLED: row.cancelled + row.blocked + row.failed > 0,
        NodeState.BLOCKED: row.blocked == row.n,
    }
    return agrees[letter]


def _final_letter(node: Node, row: Any, stopped: bool) -> str:
    if row.blocked == row.n:
        return NodeState.BLOCKED if row.n == 1 and not node.is_fan_out else NodeState.CANCELLED
    if row.cancelled or (stopped and row.blocked):
        return NodeState.CANCELLED
    join = node.spec.join
    met = join.mode == "settled" if row.failed else True
    if join.mode == "at_least" and node.is_fan_out:
        met = row.done + row.skipped >= join.needed(row.n)
    if not met or (row.failed and not node.is_fan_out):
        return NodeState.FAILED
    return NodeState.SKIPPED if row.skipped == row.n else NodeState.DONE


def _write_blocked(edit: RunEdit, counts: dict[str, Any]) -> None:
    """A stopped run has a row for each step that it never reached."""
    for node in edit.plan.nodes:
        if edit.nodes[node.index] == NodeState.BLOCKED and node.id not in counts:
            edit.add(NewStep(node.id, StepState.SKIPPED, cause=Cause.BLOCKED))


def _go_on(conn: Connection, edit: RunEdit, counts: dict[str, Any]) -> None:
    """Opens what is ready, releases shards that the window lets out, stops or ends: what the engine missed."""
    read = reader(conn)
    if edit.row.stop:
        edit.stop = StopReason(edit.row.stop)
    elif not (edit.row.started_at is None and not counts):
        _fail_for(edit, counts)
        edit.candidates = [n.index for n in edit.plan.nodes if edit.nodes[n.index] == NodeState.PENDING]
        if edit.row.retries:
            edit.existing = transitions.pending_rows(conn, edit.id)
        if not edit.stopping:
            _release(edit, counts)
        open_ready(edit, read)
        if not edit.open_rows and not edit.stopping:
            _fail_what_cannot_be_reached(edit)
    else:
        return  # delayed: its time comes
    unwind.resolve(conn, edit, read)


def _fail_for(edit: RunEdit, counts: dict[str, Any]) -> None:
    """A step has failed for good and the run was not stopped for it."""
    for node in edit.plan.nodes:
        if edit.nodes[node.index] == NodeState.FAILED and node.spec.on_error == "fail":
            row = counts[node.id]
            edit.fail(Cause(row.cause or Cause.ERROR), run_error(row.error, node.id, ""))


def _release(edit: RunEdit, counts: dict[str, Any]) -> None:
    for node in edit.plan.nodes:
        row = counts.get(node.id)
        if row is None or not row.pending or edit.nodes[node.index] != NodeState.ACTIVE:
            continue
        window = node.spec.window or settings.ORCHESTRATOR.default_window
        count = min(window - row.moving, row.pending)
        if count > 0:
            edit.released[node.id] = count
            edit.ticket(node.id, node.spec.queue, min(count, MAX_TICKETS))


def _fail_what_cannot_be_reached(edit: RunEdit) -> None:
    """Nothing is open and steps are left that nothing leads to: the run fails and says so, and can be retried."""
    left = [n.id for n in edit.plan.nodes if edit.nodes[n.index] not in NODE_SATISFIED]
    if left:
        text = f"{', '.join(left)} could not be reached any more; the doctor ended the run, retry it"
        error = {"type": "DeadEnd", "message": text, "step": left[0], "shard": ""}
        edit.fail(Cause.ERROR, json.dumps(error, ensure_ascii=False))


def _undo_on(conn: Connection, edit: RunEdit, undo: list[Any]) -> None:
    """A compensating run of which nothing moves: the next wave, the undo itself, or the end."""
    if any(row.moving for row in undo):
        return
    if unwind.is_held(edit.row):
        if rows(conn, "SELECT 1 AS held FROM workflow_runs WHERE id = %s AND hold_until IS NULL", [edit.id]):
            unwind.end_hold(conn, edit)
    elif not undo:
        unwind.end_hold(conn, edit)
    else:
        unwind.go_on(conn, edit)


def note(conn: Connection, actor: Actor, subject: str, before: Any, after: Any, run_id: UUID | None = None) -> None:
    """The audit record of a repair that is not of a run row."""
    query = """
        INSERT INTO workflow_audit (run_id, subject, action, actor, role, reason, before, after)
        VALUES (%s, %s, 'repair', %s, %s, %s, %s::jsonb, %s::jsonb)"""
    put(conn, query, [run_id, subject, actor.name, actor.role, REASON, json.dumps(before), json.dumps(after)])
