"""The sentences about a run that stops, undoes or is over."""

from __future__ import annotations

from orchestrator.core.states import Cause, NodeState, StepState, StopReason, Undo
from orchestrator.engine.explain_facts import Facts
from orchestrator.engine.explain_live import Told
from orchestrator.engine.explain_waits import due, row_sentence
from orchestrator.engine.explain_words import (
    DID,
    at_in,
    clock,
    error_text,
    in_brackets,
    label,
    label_of,
    listed,
    number,
    span,
)


def stopping(facts: Facts) -> Told:
    """A run in state ``compensating``: held, letting running attempts end, or undoing."""
    run, now = facts.run, facts.now
    why = _why(facts)
    held = run.hold_until is not None and run.hold_until > now and not facts.undo.total
    if held and run.hold_until is not None:
        told = Told(f"Stopped; an operator decides until {clock(run.hold_until, now)}", [why], due=run.hold_until)
        then = f"else the undo starts {at_in(run.hold_until, now)}"
        told.next = [f"Retry goes on without an undo, Cancel undoes now; {then}"]
        return told
    running = sum(tally.open for tally in facts.steps.values())
    if running:
        lead = f"Stopping: {number(running, 'attempt')} still under way"
        return Told(lead, [why], ["Then what was done is undone", _ends(facts)])
    if not facts.undo.total:
        return Told("Stopping", [why], [_ends(facts)])
    ended = facts.undo.total - facts.undo.open
    told = Told(f"Undoing, {ended} of {number(facts.undo.total, 'undo', 'undos')} finished")
    row = facts.focus
    if row is not None and row.state != StepState.PENDING:
        told.rest.append(row_sentence(facts, row, label_of(row)))
        told.due = due(row)
    if facts.undo.states[StepState.FAILED]:
        told.rest.append(_undo_failed(facts))
    told.next = [why, _ends(facts)]
    return told


def _ends(facts: Facts) -> str:
    if facts.run.stop == StopReason.FAILURE:
        return f"The run then ends {facts.plan.spec.on_failure.terminal_state}"
    return f"The run then ends {'cancelled' if facts.run.stop == StopReason.CANCEL else 'failed'}"


def done(facts: Facts) -> Told:
    """A run that ended well."""
    run = facts.run
    end = run.finished_at or facts.now
    told = Told(f"Done in {_took(facts)}", [f"It finished at {clock(end, facts.now)}"])
    letters = list(zip(facts.plan.nodes, run.node_states, strict=False))
    failed = [node.id for node, letter in letters if letter == NodeState.FAILED]
    skipped = [node.id for node, letter in letters if letter == NodeState.SKIPPED]
    told.rest.append(
        f"{listed(failed)} failed and {'was' if len(failed) == 1 else 'were'} passed over" if failed else ""
    )
    told.rest.append(f"{listed(skipped)} {'was' if len(skipped) == 1 else 'were'} skipped" if skipped else "")
    if run.deadline_at is not None:
        left = (run.deadline_at - end).total_seconds()
        told.next = [f"That was {span(abs(left))} {'before' if left >= 0 else 'after'} its deadline"]
    return told


def failed(facts: Facts) -> Told:
    """A run that ended failed."""
    told = Told(f"Failed after {_took(facts)}", [_why(facts), _undo(facts)])
    told.next = ["Retry executes again what failed, was not reached or was undone, and keeps the rest"]
    return told


def cancelled(facts: Facts) -> Told:
    """A run that ended cancelled, by a person, with its parent or by its definition after a failure."""
    run = facts.run
    told = Told("", [_undo(facts)])
    if run.cause == Cause.CANCELLED or run.stop == StopReason.CANCEL:
        told.lead = _why(facts)
        told.rest.insert(0, f"It stood at {facts.place}" if facts.place else "It had not started")
    else:
        told.lead = f"Cancelled after {_took(facts)}"
        told.rest.insert(0, _why(facts))
    told.next = ["Retry executes again what was stopped, not reached or undone, and keeps the rest"]
    return told


def _took(facts: Facts) -> str:
    run = facts.run
    return span(((run.finished_at or facts.now) - (run.started_at or run.submitted_at)).total_seconds())


def _why(facts: Facts) -> str:
    """Why the run stopped, from its first cause."""
    run, now = facts.run, facts.now
    if run.stop == StopReason.CANCEL or run.cause == Cause.CANCELLED:
        record = facts.cancel
        if record is None:
            return "Cancelled with its parent run" if run.parent_run_id else "Cancelled"
        return f"Cancelled by {record.actor} at {clock(record.at, now)}{in_brackets(record.reason)}"
    if run.stop == StopReason.DEADLINE or run.cause == Cause.DEADLINE:
        return _deadline(facts)
    error = run.error if isinstance(run.error, dict) else {}
    row = facts.failed_row
    name = label(error.get("step") or facts.place or "it", error.get("shard"))
    attempts = f" after {number(row.attempt, 'attempt')}" if row is not None and row.attempt > 1 else ""
    text = error_text(error or (row.error if row else None))
    return f"{name} {DID.get(Cause(run.cause), 'failed') if run.cause else 'failed'}{attempts}{in_brackets(text)}"


def _deadline(facts: Facts) -> str:
    run = facts.run
    passed = f" at {clock(run.deadline_at, facts.now)}" if run.deadline_at else ""
    text = f"The deadline of {span(run.deadline_seconds)} passed{passed}"
    caught = facts.stopped_rows
    if not caught:
        return f"{text}, while it stood at {facts.place}" if facts.place else text
    first = caught[0]
    begun = first.started_at or first.created_at
    ran = span(((first.finished_at or facts.now) - begun).total_seconds())
    return f"{text}, while {label_of(first)} had been under way for {ran}"


def _undo(facts: Facts) -> str:
    undo = facts.run.compensation
    if undo == Undo.PARTIAL:
        return _undo_failed(facts)
    if facts.undo.total:
        settled = facts.undo.states[StepState.FAILED]
        by_hand = f", {settled} of them settled by hand" if settled else ""
        return f"What was done is undone ({number(facts.undo.total, 'undo', 'undos')}{by_hand})"
    return "Nothing was there to undo"


def _undo_failed(facts: Facts) -> str:
    failed = facts.failed_undo
    names = listed([label_of(row) for row in failed])
    count = facts.undo.total - facts.undo.states[StepState.DONE] - facts.undo.states[StepState.SKIPPED]
    count = max(count - facts.undo.open, len(failed))
    error = in_brackets(error_text(failed[0].error, 100)) if failed else ""
    settle = "replay it from the dead letters, or settle it with a note"
    text = f"{count} of {number(facts.undo.total, 'undo', 'undos')} failed: {names}{error}"
    return f"{text}; {settle}" if facts.terminal else text
