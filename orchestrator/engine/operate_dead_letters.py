"""What people do with permanent failures: replay, discard, settle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.states import DeadLetterState, RunState
from orchestrator.engine import history, transitions
from orchestrator.engine.db import Connection, caller_transaction, notify, rows
from orchestrator.engine.edit import Audit, RunEdit
from orchestrator.engine.operate_runs import lock_run, retry_run


def _letters(conn: Connection, letter_ids: Sequence[int]) -> dict[int, Any]:
    """Dead letters by id, locked, whatever their state."""
    query = """
        SELECT d.id, d.run_id, d.step_row_id, d.state, d.step, d.shard, s.kind
        FROM workflow_dead_letters d JOIN workflow_steps s ON s.id = d.step_row_id
        WHERE d.id = ANY(%s) ORDER BY d.id FOR UPDATE OF d"""
    return {letter.id: letter for letter in rows(conn, query, [list(letter_ids)])}


def _why_not(letter: Any, letter_id: int, *also: str) -> Conflict | NotFound | None:
    if letter is None:
        return NotFound(f"there is no dead letter {letter_id}")
    if letter.state not in (DeadLetterState.OPEN, *also):
        return Conflict(f"dead letter {letter_id} is {letter.state} already")
    return None


def _open_letter(conn: Connection, letter_id: int, *also: str) -> Any:
    letter = _letters(conn, [letter_id]).get(letter_id)
    if error := _why_not(letter, letter_id, *also):
        raise error
    return letter


def _lock_open_letter(conn: Connection, letter_id: int, *also: str) -> Any:
    """The same behind the lock of its run, which comes before that of any other row. ``also``: other states that do."""
    found = rows(conn, "SELECT run_id FROM workflow_dead_letters WHERE id = %s", [letter_id])
    if not found:
        raise NotFound(f"there is no dead letter {letter_id}")
    lock_run(conn, found[0].run_id)
    return _open_letter(conn, letter_id, *also)


def _was_open(letter: Any) -> dict[str, Any]:
    return {"dead_letter": letter.id, "step": letter.step, "shard": letter.shard, "state": letter.state}


def replay_dead_letter(letter_id: int, actor: Actor, reason: str) -> None:
    """Runs this one row again with a fresh budget, and what it blocked after it. Of an undo: just the undo.

    Raises:
        NotFound, NotAllowed, Invalid, Conflict: as :func:`retry_run`; also when the letter is not open.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        letter = _lock_open_letter(conn, letter_id)
        if letter.kind == "compensation":
            _replay_undo(conn, [letter], actor, reason)
            return
        retry_run(letter.run_id, actor, reason, only=[letter.step_row_id])


def replay_dead_letters(run_id: UUID, letter_ids: Sequence[int], actor: Actor, reason: str) -> dict[int, str]:
    """Replays several dead letters of one run together: after one alone the run would be running and refuse the rest.

    ``letter_ids`` are of that run. Returns those that were not replayed, with why.

    Raises:
        NotFound, NotAllowed, Invalid, Conflict: as :func:`retry_run`; nothing was changed.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        lock_run(conn, run_id)
        found = _letters(conn, letter_ids)
        refused = {one: error.message for one in letter_ids if (error := _why_not(found.get(one), one))}
        letters = [letter for letter in found.values() if letter.id not in refused]
        steps = [letter for letter in letters if letter.kind != "compensation"]
        undos = [letter for letter in letters if letter.kind == "compensation"]
        if steps:
            retry_run(run_id, actor, reason, only=[letter.step_row_id for letter in steps])
            refused |= {letter.id: _RUNS_AGAIN.format(run=run_id, state="running") for letter in undos}
        elif undos:
            _replay_undo(conn, undos, actor, reason)
    return refused


_RUNS_AGAIN = (
    "run {run} is {state}: its step has been or will be run again, so this undo can only be settled with a note"
)


def _replay_undo(conn: Connection, letters: Sequence[Any], actor: Actor, reason: str) -> None:
    """Open dead letters of compensations of one locked run."""
    row, plan = lock_run(conn, letters[0].run_id)
    if row.state not in (RunState.FAILED, RunState.CANCELLED):
        raise Conflict(_RUNS_AGAIN.format(run=row.id, state=row.state))
    history.close_dead_letters(conn, [letter.step_row_id for letter in letters], DeadLetterState.REPLAYED, "")
    specs = [plan.compensations[letter.step] for letter in letters]
    fresh = row
    for letter, spec in zip(letters, specs, strict=True):
        fresh = transitions.reopen_undo(conn, row.id, letter.step_row_id, spec.retries)
    edit = RunEdit.of(fresh, plan)
    for letter, spec in zip(letters, specs, strict=True):
        edit.ticket(letter.step, spec.queue)
        # The run's state changes once, whatever the number.
        states = ({"state": row.state}, {"state": "compensating"}) if letter is letters[0] else ({}, {})
        before = {**states[0], "dead_letter": letter.id, "compensation": row.compensation}
        after = {**states[1], "undo": letter.step, "shard": letter.shard}
        edit.audits.append(Audit.of(actor, "replay", reason, before, after))
    edit.current_step = letters[-1].step
    transitions.write(conn, [edit], None, {})
    notify(conn)


def settle_dead_letter(letter_id: int, actor: Actor, note: str) -> None:
    """Closes the dead letter of an undo with a note of what a person did instead; the last one clears the run's flag.

    Raises:
        NotFound, NotAllowed, Invalid: no such letter, role below admin, no note.
        Conflict: the letter is neither open nor discarded, or is not of an undo.
    """
    require(actor, "admin", note)
    with caller_transaction() as conn:
        letter = _lock_open_letter(conn, letter_id, DeadLetterState.DISCARDED)
        if letter.kind != "compensation":
            raise Conflict("only the dead letter of an undo can be settled; replay or discard this one")
        history.close_dead_letters(conn, [letter.step_row_id], DeadLetterState.SETTLED, note.strip(), letter.state)
        cleared = transitions.clear_partial(conn, letter.run_id)
        after = {"state": "settled", "partial_cleared": cleared}
        record = Audit.of(actor, "settle", note, _was_open(letter), after)
        history.insert_audit(conn, [(letter.run_id, record)])


def settle_undos(run_id: UUID, actor: Actor, note: str, letter_id: int | None = None) -> int:
    """Settles what is left of a run's incomplete undo, or one dead letter of it, with one note; how many.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below admin, no note.
        Conflict: the run has no such open dead letter of an undo.
    """
    require(actor, "admin", note)
    query = """
        SELECT d.id FROM workflow_dead_letters d JOIN workflow_steps s ON s.id = d.step_row_id
        WHERE d.run_id = %s AND s.kind = 'compensation' AND (%s::bigint IS NULL OR d.id = %s)
          AND (d.state = 'open' OR (d.state = 'discarded' AND s.state = 'failed'))
        ORDER BY d.id"""
    with caller_transaction() as conn:
        row, _ = lock_run(conn, run_id)
        found = rows(conn, query, [row.id, letter_id, letter_id])
        if not found:
            raise Conflict(f"run {row.id} has no open dead letter of an undo{f' {letter_id}' if letter_id else ''}")
        for letter in found:
            settle_dead_letter(letter.id, actor, note)
        return len(found)


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
        record = Audit.of(actor, "discard", reason, _was_open(letter), {"state": "discarded"})
        history.insert_audit(conn, [(letter.run_id, record)])
