"""Child runs: started for `workflow:` steps, joined without holding a worker, stopped with their parent.

All of it is level-triggered, by the dispatcher: a step that waits for children without any gets them, one whose
children have all ended is ended, and a child whose parent stops is cancelled.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from uuid import UUID

from orchestrator.core.actor import ENGINE
from orchestrator.core.errors import SwitchyardError
from orchestrator.core.states import Cause, Kind, RunState, StepState, StopReason
from orchestrator.engine import transitions
from orchestrator.engine.advance import fill
from orchestrator.engine.artifacts import ArtifactMissing, StorageAway
from orchestrator.engine.claims import End
from orchestrator.engine.db import Connection, in_transaction, rows, sql
from orchestrator.engine.edit import Audit, RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import load_plan
from orchestrator.engine.recover import LIMIT, lock_edit, safely
from orchestrator.engine.retry import choose, reopen
from orchestrator.engine.submit import submit_on
from orchestrator.engine.unwind import resolve
from orchestrator.engine.waits import end_rows

STARTED = "started"


def start(conn: Connection, limit: int = LIMIT) -> int:
    """Gives `workflow:` steps that have become ready their child runs; returns how many."""
    query = """
        SELECT id, run_id FROM workflow_steps
        WHERE state = 'waiting' AND waiting_for = 'children' AND waiting_name IS NULL ORDER BY id LIMIT %s"""
    return sum(safely(r.run_id, partial(_start, conn, r.run_id, r.id)) for r in rows(conn, query, [limit]))


_ROW = """
SELECT id, step, shard, item::text AS item_text, generation FROM workflow_steps
WHERE id = %s AND state = 'waiting' AND waiting_for = 'children' AND waiting_name IS NULL
"""


def _start(conn: Connection, run_id: UUID, row_id: int) -> int:
    """Under the parent's lock: after a cancel is acknowledged no child is made."""

    def work() -> int:
        edit = lock_edit(conn, run_id)
        found = rows(conn, _ROW, [row_id])
        if edit is None or edit.stopping or not found:
            return 0
        try:
            child = _submit(conn, edit, found[0])
        except ArtifactMissing as gone:
            error = json.dumps({"type": "ArtifactMissing", "message": gone.message}, ensure_ascii=False)
            end_rows(conn, edit, [End(row_id, StepState.FAILED, Cause.ARTIFACT_MISSING, error)], "children")
            return 1
        except StorageAway:
            raise  # the next pass asks again
        except SwitchyardError as refused:
            error = json.dumps({"type": "ChildRefused", "message": refused.message}, ensure_ascii=False)
            end_rows(conn, edit, [End(row_id, StepState.FAILED, Cause.CHILD_FAILED, error)], "children")
            return 1
        transitions.note_children(conn, row_id, STARTED)
        _retry_ended(conn, child)
        return 1

    return in_transaction(conn, work)


def _submit(conn: Connection, edit: RunEdit, row: Any) -> UUID:
    spec = edit.plan.by_id[row.step].spec
    read = reader(conn)
    item = json.loads(row.item_text) if row.item_text is not None else None
    subject = f"{edit.row.subject_id}/{row.shard}" if row.shard else edit.row.subject_id
    if spec.subject_id is not None:
        subject = str(fill(edit, spec.subject_id, read, row.shard, item))
    given = fill(edit, spec.input, read, row.shard, item) if spec.input is not None else {}
    child, _ = submit_on(
        conn,
        ENGINE,
        workflow=spec.workflow,
        subject_id=subject,
        input=given,
        idempotency_key=f"child:{row.id}:{row.generation}",
        parent=(edit.id, row.id),
    )
    return child


def _retry_ended(conn: Connection, child_id: UUID) -> None:
    """The parent's retry found the child that it had before: if that has failed, it is retried with it."""
    child = transitions.lock_runs(conn, [child_id])[0]
    if child.state in (RunState.FAILED, RunState.CANCELLED):
        plan = load_plan(conn, child.definition_id)
        chosen = choose(conn, child, plan, None, None)
        edit = reopen(conn, child, plan, chosen)
        before, after = {"state": child.state, "cause": child.cause}, {"state": RunState.RUNNING}
        edit.audits.append(Audit.of(ENGINE, "retry", "its parent was retried", before, after))
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})


def join(conn: Connection, limit: int = LIMIT) -> int:
    """Ends steps whose children have all ended; returns how many."""
    due = rows(conn, sql("select_joined"), {"limit": limit})
    return sum(safely(r.run_id, partial(_join, conn, r.run_id, r.id)) for r in due)


#: Of a step that was undone and runs again, the children that it had before count no more (their default key tells).
#: ``before``: ended before a person let the step run again.
_CHILDREN = """
SELECT c.id, c.workflow, c.subject_id, c.state, c.cause, c.output::text AS output,
       coalesce(c.finished_at < s.first_started_at, false) AS before
FROM workflow_runs c JOIN workflow_steps s ON s.id = c.parent_step_id
WHERE c.parent_step_id = %s AND c.state IN ('done', 'failed', 'cancelled')
  AND (c.idempotency_key IS NULL OR NOT starts_with(c.idempotency_key, 'child:' || s.id || ':')
       OR split_part(c.idempotency_key, ':', 3) = s.generation::text)
ORDER BY c.id
"""


def _join(conn: Connection, run_id: UUID, row_id: int) -> int:
    def work() -> int:
        edit = lock_edit(conn, run_id)
        row = rows(conn, "SELECT step, kind FROM workflow_steps WHERE id = %s", [row_id])[0]
        if edit is None:
            return 0
        ended = rows(conn, _CHILDREN, [row_id])
        again = [c for c in ended if c.before and c.state != RunState.DONE and not edit.stopping]
        for child in again:
            _retry_ended(conn, child.id)
        if again:
            return len(again)
        end = _ending(edit, row, row_id, ended)
        return len(end_rows(conn, edit, [end], "children"))

    return in_transaction(conn, work)


def _ending(edit: RunEdit, row: Any, row_id: int, children: list[Any]) -> End:
    bad = [child for child in children if child.state != RunState.DONE]
    if edit.stopping and bad:
        cause = {StopReason.CANCEL: Cause.CANCELLED, StopReason.DEADLINE: Cause.DEADLINE}
        return End(row_id, StepState.CANCELLED, cause.get(edit.stopping, Cause.BLOCKED))
    if bad:
        told = ", ".join(f"{c.workflow} {c.subject_id} {c.state} ({c.cause})" for c in bad[:3])
        message = f"{len(bad)} of {len(children)} child runs did not end well: {told}"
        error = json.dumps({"type": "ChildFailed", "message": message}, ensure_ascii=False)
        return End(row_id, StepState.FAILED, Cause.CHILD_FAILED, error)
    own = row.kind == Kind.STEP and edit.plan.by_id[row.step].spec.workflow is not None
    return End(row_id, StepState.DONE, output=children[0].output if own and children else None)


def stop(conn: Connection, limit: int = LIMIT) -> int:
    """Cancels live children of runs that are stopping; returns how many."""
    query = """
        SELECT c.id FROM workflow_runs c JOIN workflow_runs p ON p.id = c.parent_run_id
        WHERE c.parent_step_id IS NOT NULL AND c.state = 'running' AND c.stop IS NULL AND p.stop IS NOT NULL
        ORDER BY c.id LIMIT %s"""
    return sum(safely(r.id, partial(_cancel, conn, r.id)) for r in rows(conn, query, [limit]))


def _cancel(conn: Connection, run_id: UUID) -> int:
    def work() -> int:
        edit = lock_edit(conn, run_id)
        if edit is None or edit.stopping or edit.now_state is not RunState.RUNNING:
            return 0
        before = {"state": RunState.RUNNING}
        edit.audits.append(Audit.of(ENGINE, "cancel", "its parent stops", before, {"force": False}))
        edit.halt(StopReason.CANCEL, Cause.CANCELLED)
        transitions.note_cancel(conn, run_id, False)
        resolve(conn, edit, reader(conn))
        transitions.write(conn, [edit], None, {})
        return 1

    return in_transaction(conn, work)
