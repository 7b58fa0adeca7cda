"""Permanent failures and incomplete undos: each is on record where people look for it."""

from __future__ import annotations

import json
from functools import partial
from uuid import UUID

from orchestrator.core.actor import Actor
from orchestrator.core.states import RUN_TERMINAL, DeadLetterState, Undo
from orchestrator.engine import history, transitions
from orchestrator.engine.db import Connection, in_transaction, rows
from orchestrator.engine.doctor.look import Broken, Scope, find
from orchestrator.engine.doctor.mend import note, on_run
from orchestrator.engine.edit import RunEdit

_UNLETTERED = """
WITH {scope}
SELECT s.id, s.run_id, s.step, s.shard, s.attempt, s.state, d.state AS letter
FROM scope r
JOIN workflow_steps s ON s.run_id = r.id
LEFT JOIN workflow_dead_letters d ON d.step_row_id = s.id
WHERE (s.state = 'failed' AND (d.id IS NULL OR d.state = 'replayed'))
   OR (d.state = 'open' AND s.state NOT IN ('failed', 'rejected'))
ORDER BY s.id LIMIT %(limit)s
"""


def dead_letters(conn: Connection, scope: Scope) -> list[Broken]:
    """Every row that has failed for good has its dead letter, and an open letter is of a row that has failed."""
    found = []
    for row in find(conn, scope, _UNLETTERED):
        name = f"{row.step}[{row.shard}]" if row.shard else row.step
        if row.state == "failed":
            detail = f"{name} of run {row.run_id} has failed and is not in the dead letters"
        else:
            detail = f"{name} of run {row.run_id} is {row.state}, its dead letter is still open"
        found.append(
            Broken("dead_letters", str(row.id), detail, partial(_mend_letter, run_id=row.run_id, row_id=row.id))
        )
    return found


_ROW = """
SELECT s.state, s.step, s.shard, s.cause, s.error::text AS error, s.attempt, d.state AS letter
FROM workflow_steps s LEFT JOIN workflow_dead_letters d ON d.step_row_id = s.id WHERE s.id = %s
"""


def _mend_letter(conn: Connection, actor: Actor, run_id: UUID, row_id: int) -> str | None:
    def work() -> str | None:
        run = transitions.lock_runs(conn, [run_id])[0]
        row = rows(conn, _ROW, [row_id])[0]
        before = {"row": row_id, "step": row.step, "shard": row.shard, "dead_letter": row.letter}
        if row.state == "failed" and row.letter in (None, DeadLetterState.REPLAYED):
            error = row.error or json.dumps({"type": "", "message": "the error was not recorded"})
            dead = (run, row_id, row.step, row.shard, row.cause or "error", error, row.attempt)
            history.insert_dead_letters(conn, [dead])
            after = DeadLetterState.OPEN
        elif row.state != "failed" and row.letter == DeadLetterState.OPEN:
            history.close_dead_letters(conn, [row_id], DeadLetterState.REPLAYED, "")
            after = DeadLetterState.REPLAYED
        else:
            return None
        note(conn, actor, "", before, {**before, "dead_letter": after}, run_id)
        return f"dead letter of {row.step} is {after}"

    return in_transaction(conn, work)


# An undo that failed counts until its letter was replayed or settled; a discarded one leaves the flag as it is.
_PARTIAL = """
WITH {scope}, undo AS (
    SELECT s.run_id, bool_or(d.state = 'open' AND s.state = 'failed') AS open,
           bool_or(d.state IN ('open', 'discarded') OR (d.id IS NULL AND s.state = 'failed')) AS unsettled
    FROM scope r
    JOIN workflow_steps s ON s.run_id = r.id AND s.kind = 'compensation'
    LEFT JOIN workflow_dead_letters d ON d.step_row_id = s.id
    GROUP BY s.run_id
)
SELECT r.id, r.state, r.compensation, coalesce(u.open, false) AS open
FROM scope r LEFT JOIN undo u ON u.run_id = r.id
WHERE (r.state = ANY(%(terminal)s) AND u.open AND r.compensation IS DISTINCT FROM 'partial')
   OR (r.compensation = 'partial' AND NOT coalesce(u.unsettled, false))
LIMIT %(limit)s
"""


def partial_undo(conn: Connection, scope: Scope) -> list[Broken]:
    """A run says that its undo is incomplete if and only if an undo has failed and was not replayed or settled."""
    return [
        Broken(
            "partial_undo",
            str(row.id),
            f"compensation is {row.compensation or 'empty'}, but an undo has failed and is not settled"
            if row.open
            else "compensation is partial, but every failed undo was replayed or settled",
            partial(_mend_flag, run_id=row.id),
        )
        for row in find(conn, scope, _PARTIAL)
    ]


def _mend_flag(conn: Connection, actor: Actor, run_id: UUID) -> str | None:
    def set_flag(edit: RunEdit) -> bool:
        if edit.row.compensation == Undo.PARTIAL:
            if not transitions.clear_partial(conn, edit.id):
                return False
            edit.compensation = Undo.DONE
        elif edit.row.state in RUN_TERMINAL:
            edit.compensation = Undo.PARTIAL
        return edit.compensation is not None

    return on_run(conn, actor, run_id, set_flag)
