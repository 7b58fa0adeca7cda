"""Stopping a run, undoing what it did, and ending it.

Everything runs under the run's lock. A stop closes what has not started; the attempt that ends last (or the stop
itself, where nothing runs) begins the undo: compensations in reverse order of start, the shards of one step together,
then the ``on_failure`` entries in their order, each after the one before it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from orchestrator.core.states import NODE_TERMINAL, Cause, NodeState, RunState, StepState, StopReason, Undo
from orchestrator.core.text import to_json
from orchestrator.engine import transitions
from orchestrator.engine.advance import fail_for_what_was_left, open_ready, take_nothing
from orchestrator.engine.artifacts import ArtifactMissing
from orchestrator.engine.db import Connection, rows, sql
from orchestrator.engine.edit import NewStep, ReadOutput, RunEdit, Take

_SHARDS = """
SELECT shard, state, item::text AS item_text FROM workflow_steps
WHERE run_id = %s AND step = %s AND kind = 'step' AND shard <> '' ORDER BY ordinal"""


def resolve(conn: Connection, edit: RunEdit, read: ReadOutput, take: Take = take_nothing) -> None:
    """Takes a run as far as it can go: opens what is ready, stops, undoes, ends."""
    if edit.now_state is RunState.RUNNING:
        if edit.row.retries and edit.candidates and not edit.existing:
            edit.existing = transitions.pending_rows(conn, edit.id)
        if edit.existing:
            edit.look = lambda step: rows(conn, _SHARDS, [edit.id, step])
        open_ready(edit, read, take)
        if edit.row.retries and not edit.open_rows:
            fail_for_what_was_left(edit)
        if edit.stop:
            _stop(conn, edit)
        if edit.open_rows == 0:
            if edit.stopping:
                _begin(conn, edit)
            else:
                _finish_done(edit, read)
    elif edit.now_state is RunState.COMPENSATING and edit.undone:
        go_on(conn, edit)


def _stop(conn: Connection, edit: RunEdit) -> None:
    """Closes what has not started, and writes down what will not be reached."""
    assert edit.stop
    _unmake(edit)
    for closed in transitions.close_unstarted(conn, edit.id, edit.stop):
        edit.delta -= closed.n
        node = edit.plan.by_id[closed.step]
        if not closed.open:
            edit.nodes[node.index] = NodeState.CANCELLED
    for node in edit.plan.nodes:
        if edit.nodes[node.index] == NodeState.PENDING:
            edit.add(NewStep(node.id, StepState.SKIPPED, cause=Cause.BLOCKED))
            edit.nodes[node.index] = NodeState.BLOCKED


def _unmake(edit: RunEdit) -> None:
    """Takes back what this same transaction was about to open: nothing new starts once the run is stopped."""
    kept = []
    for new in edit.new_steps:
        if new.state in (StepState.DONE, StepState.SKIPPED, StepState.FAILED):
            kept.append(new)
        else:
            edit.delta -= 1
            edit.nodes[edit.plan.by_id[new.step].index] = NodeState.PENDING
    for fan_out in edit.fan_outs:
        if fan_out.bulk:
            edit.delta -= len(fan_out.items)
            edit.nodes[edit.plan.by_id[fan_out.step].index] = NodeState.PENDING
    edit.new_steps = kept
    edit.fan_outs.clear()
    edit.delta -= sum(made.shift for made in edit.remade)
    edit.remade.clear()
    edit.tickets.clear()
    edit.released.clear()


def _begin(conn: Connection, edit: RunEdit) -> None:
    """Nothing of the run is open any more: makes its compensations, or ends it where there are none."""
    _close_letters(edit)
    started = rows(conn, sql("select_started"), {"run": edit.id})
    planned = _compensations(edit, started)
    if not planned:
        _finish_stopped(edit, None)
        return
    hold = edit.plan.spec.on_failure.hold
    if hold and edit.stopping is not StopReason.CANCEL and edit.now_state is RunState.RUNNING:
        edit.hold = hold
        edit.compensation = Undo.PENDING
        edit.move(RunState.COMPENSATING, json.dumps({"state": RunState.COMPENSATING, "held": True}))
        return
    transitions.insert_compensations(conn, edit.id, planned)
    edit.delta += len(planned)
    edit.compensation = Undo.RUNNING
    after = json.dumps({"state": RunState.COMPENSATING, "undoing": len(planned)})
    if edit.now_state is not RunState.COMPENSATING:  # it is already where it was held
        edit.move(RunState.COMPENSATING, after)
    _release_wave(conn, edit)


def is_held(run: Any) -> bool:
    """Whether a run (locked row or model) waits for an operator before its undo begins."""
    return bool(run.state == RunState.COMPENSATING and run.compensation == Undo.PENDING)


def end_hold(conn: Connection, edit: RunEdit) -> None:
    """Begins the undo of a held run: its time is up, or an operator has decided."""
    edit.hold = 0.0
    _begin(conn, edit)


def _close_letters(edit: RunEdit) -> None:
    """After a stop, nodes still active have rows in several final states; the run is over for all of them."""
    for i, letter in enumerate(edit.nodes):
        if letter not in NODE_TERMINAL:
            edit.nodes[i] = NodeState.CANCELLED


def _compensations(edit: RunEdit, started: list[Any]) -> list[dict[str, Any]]:
    """Rows to make, in order: (name, shard, wave, undoes, …). ``started`` comes latest start first."""
    planned: list[dict[str, Any]] = []
    wave, previous = 0, None
    for row in started:
        spec = edit.plan.by_id[row.step].spec.compensate
        if spec is None:
            continue
        if previous is not None and row.step != previous:
            wave += 1
        previous = row.step
        planned.append(
            {"name": spec.name, "shard": row.shard, "wave": wave, "undoes": row.id, "undoes_steps": [row.step],
             "queue": spec.queue, "retries": spec.retries, "item": row.item_text}
        )  # fmt: skip
    wave += 1 if planned else 0
    if not started:
        # Nothing ever started, so there is nothing that on_failure could undo either.
        return planned
    for entry in edit.plan.spec.on_failure.compensate:
        planned.append(
            {"name": entry.name, "shard": "", "wave": wave, "undoes": None, "undoes_steps": list(entry.undoes),
             "queue": entry.queue, "retries": entry.retries, "item": None}
        )  # fmt: skip
        wave += 1
    return planned


def _release_wave(conn: Connection, edit: RunEdit) -> None:
    for released in transitions.release_wave(conn, edit.id):
        edit.ticket(released.step, released.queue)
        edit.current_step = released.step


def go_on(conn: Connection, edit: RunEdit) -> None:
    """Compensations have ended: notes what they undid, then releases the next wave or ends the run."""
    transitions.mark_undone(conn, edit.id, edit.undone)
    edit.delta -= len(edit.undone)
    state = rows(conn, sql("select_undo"), {"run": edit.id})[0]
    if state.released:
        return
    if state.pending:
        _release_wave(conn, edit)
        return
    _finish_stopped(edit, Undo.PARTIAL if state.failed else Undo.DONE)


def _finish_stopped(edit: RunEdit, undo: Undo | None) -> None:
    if edit.stopping is StopReason.CANCEL:
        state = RunState.CANCELLED
    elif edit.stopping is StopReason.DEADLINE:
        state = RunState.FAILED
    else:
        state = RunState(edit.plan.spec.on_failure.terminal_state)
    edit.compensation = undo
    cause = edit.cause or edit.row.cause
    edit.move(state, json.dumps({"state": state, "cause": cause, **({"compensation": undo} if undo else {})}))


def _finish_done(edit: RunEdit, read: ReadOutput) -> None:
    """Every step has ended well. The run's output is its last step's, or ``{step: output}`` of several."""
    last = edit.plan.last
    if len(last) == 1 and last[0].id in edit.outputs:
        edit.output, edit.output_ref = edit.outputs[last[0].id]
    else:
        with suppress(ArtifactMissing):  # every step has ended well all the same
            edit.output = _read_text(edit, read)
    edit.move(RunState.DONE, '{"state":"done"}')


#: A run's output over this many characters is left to its steps; the run then has none of its own.
_OUTPUT_LIMIT = 1_000_000


def _read_text(edit: RunEdit, read: ReadOutput) -> str | None:
    last = edit.plan.last
    values = {
        node.id: None if edit.nodes[node.index] in (NodeState.SKIPPED, NodeState.FAILED) else read(edit.id, node)
        for node in last
    }
    value = values[last[0].id] if len(last) == 1 else values
    if value is None:
        return None
    text = to_json(value)
    return text if len(text) <= _OUTPUT_LIMIT else None
