"""Ends of waiting that need no worker: timers, approvals that nobody gave, joins that have waited long enough."""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from uuid import UUID

from orchestrator.core.states import Cause, NodeState, StepState
from orchestrator.engine import gates, history, transitions
from orchestrator.engine.claims import End
from orchestrator.engine.closing import close_node
from orchestrator.engine.db import Connection, in_transaction, rows
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.recover import LIMIT, lock_edit, safely
from orchestrator.engine.unwind import resolve


def fire_due(conn: Connection, limit: int = LIMIT) -> int:
    """Ends `wait` steps and approvals whose time is up and lets their runs go on; returns how many."""
    query = """
        SELECT id, run_id FROM workflow_steps
        WHERE state = 'waiting' AND waiting_for IN ('timer', 'approval') AND ready_at <= now()
        ORDER BY ready_at LIMIT %s"""
    due = rows(conn, query, [limit])
    return sum(safely(row.run_id, partial(_fire, conn, row.run_id, row.id)) for row in due)


def _fire(conn: Connection, run_id: UUID, row_id: int) -> int:
    def work() -> int:
        edit = lock_edit(conn, run_id)
        query = "SELECT step, waiting_for FROM workflow_steps WHERE id = %s AND state = 'waiting' AND ready_at <= now()"
        found = rows(conn, query, [row_id])
        if edit is None or edit.stopping or not found:
            return 0
        return len(end_rows(conn, edit, [_end(edit, row_id, found[0])], found[0].waiting_for))

    return in_transaction(conn, work)


def _end(edit: RunEdit, row_id: int, row: Any) -> End:
    approval = edit.plan.by_id[row.step].spec.approval
    if row.waiting_for != "approval" or approval is None:
        return End(row_id, StepState.DONE)
    if approval.on_timeout == "fail":
        message = f"nobody of {approval.group} approved within {approval.timeout:g} s"
        error = json.dumps({"type": "Timeout", "message": message}, ensure_ascii=False)
        return End(row_id, StepState.FAILED, Cause.TIMEOUT, error)
    if approval.on_timeout == "skip":
        return End(row_id, StepState.SKIPPED)
    return End(row_id, StepState.DONE, output='{"approved_by":null,"reason":"nobody answered in time"}')


def end_rows(
    conn: Connection, edit: RunEdit, ends: list[End], waits: str | None, was: tuple[str, ...] = (StepState.WAITING,)
) -> list[Any]:
    """Ends rows of a locked run that no worker holds, and takes the run as far as it can go; the rows really ended."""
    closed = transitions.end_unclaimed(conn, ends, was, waits)
    if not closed:
        return []
    dead = [
        (edit.row, row.id, row.step, row.shard, row.cause, row.error_text, row.attempt)
        for row in closed
        if row.state == StepState.FAILED
    ]
    if dead:
        history.insert_dead_letters(conn, dead)
    for row in closed:
        edit.outputs.pop(row.step, None)
        close_node(edit, row)
    resolve(conn, edit, reader(conn))
    transitions.write(conn, [edit], None, {})
    return closed


def expire_joins(conn: Connection, limit: int = LIMIT) -> int:
    """Lets fan-outs go on whose `join_timeout` has passed, with what has completed; returns how many."""
    query = """
        SELECT run_id, step FROM workflow_fan_outs
        WHERE join_due_at <= now() AND open > 0 ORDER BY join_due_at LIMIT %s"""
    return sum(safely(r.run_id, partial(_expire, conn, r.run_id, r.step)) for r in rows(conn, query, [limit]))


def _expire(conn: Connection, run_id: UUID, step: str) -> int:
    def work() -> int:
        edit = lock_edit(conn, run_id)
        node = edit.plan.by_id[step] if edit else None
        if edit is None or node is None or edit.stopping or edit.nodes[node.index] != NodeState.ACTIVE:
            return 0
        ended = transitions.expire_join(conn, run_id, step)
        edit.delta -= len(ended)
        edit.mark(node, NodeState.DONE)
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})
        gates.wake(conn, ended)
        return 1

    return in_transaction(conn, work)
