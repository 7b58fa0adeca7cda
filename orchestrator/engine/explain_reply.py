"""What a customer may be told: words of the definition's ``say``, never a step, handler, queue or error."""

from __future__ import annotations

from datetime import datetime

from orchestrator.core.states import NODE_SATISFIED, NodeState, RunState, StopReason
from orchestrator.engine.explain_words import clock_zone, sentences
from orchestrator.engine.plans import Plan
from orchestrator.engine.reading import plan
from orchestrator.models import Run


def reply(run: Run, now: datetime) -> str:
    """One or two sentences for the customer, from the run row and its (cached) definition alone."""
    match RunState(run.state):
        case RunState.DONE:
            return f"This is done, since {clock_zone(run.finished_at or now, now)}."
        case RunState.FAILED:
            return "This could not be completed. Please get in touch with us."
        case RunState.CANCELLED:
            return "This was cancelled."
    if run.stop:
        if run.stop == StopReason.CANCEL:
            return "This is being cancelled."
        return "Something went wrong, and this will not be completed as it is. We are cleaning up."
    if run.started_at is None and run.available_at is not None and run.available_at > now:
        return f"This is planned to start at {clock_zone(run.available_at, now)}."
    compiled = plan(run.definition_id)
    phrase = _say(compiled, run)
    ended = sum(letter in NODE_SATISFIED for letter in run.node_states)
    total = len(compiled.nodes)
    under_way = NodeState.ACTIVE in run.node_states
    place = f"Step {min(ended + 1, total)} of {total}" if total > 1 and under_way else ""
    late = "It takes longer than it should" if run.deadline_at is not None and run.deadline_at < now else ""
    said = phrase or ("This is in progress" if under_way else "We have received this and start soon")
    return sentences(said, place, late)


def _say(compiled: Plan, run: Run) -> str:
    """The phrase of a step under way that has one, the current step's first; else of the last one finished."""
    active = [n for n, letter in zip(compiled.nodes, run.node_states, strict=False) if letter == NodeState.ACTIVE]
    active.sort(key=lambda node: node.id != run.current_step)
    return next((node.spec.say for node in active if node.spec.say), "") or ""
