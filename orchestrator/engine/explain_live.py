"""The sentences about a run that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.core.states import NodeState, StepState, WaitingFor
from orchestrator.engine.explain_facts import Facts, Tally
from orchestrator.engine.explain_waits import due, row_sentence
from orchestrator.engine.explain_words import at_in, clock, listed, number, span, upper_first
from orchestrator.models import Step


@dataclass
class Told:
    """Parts of an answer: the lead, the sentences behind it, what comes next, and what is counted down to."""

    lead: str
    rest: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    due: datetime | None = None


def running(facts: Facts) -> Told:
    """A run in state ``running``."""
    row = facts.focus
    if row is None:
        return _not_begun(facts)
    told = _fan_out(facts, row) if facts.plan.by_id[row.step].is_fan_out else _plain(facts, row)
    told.due = due(row)
    told.rest += [overdue(facts)]
    told.next += [_also(facts, row), _then(facts, row), _otherwise(facts, row)]
    return told


def _not_begun(facts: Facts) -> Told:
    run, now = facts.run, facts.now
    first = listed([node.id for node in facts.plan.roots])
    more = len(facts.plan.nodes) - len(facts.plan.roots)
    then = f"First {first}" + (f", then {number(more, 'more step')}" if more else "")
    clock_starts = f"Its deadline of {span(run.deadline_seconds)} counts from then"
    if run.started_at is None and run.available_at is not None and run.available_at > now:
        lead = f"Delayed: it starts {at_in(run.available_at, now)}"
        return Told(lead, next=[then, clock_starts], due=run.available_at)
    if run.started_at is None:
        waited = span((now - (run.available_at or run.submitted_at)).total_seconds())
        return Told(f"Not started yet, for {waited}", ["It waits for other runs to end"], [then, clock_starts])
    return Told(f"Between steps, after {facts.place or 'the start'}", [overdue(facts)])


def _plain(facts: Facts, row: Step) -> Told:
    if row.state == StepState.WAITING and row.waiting_for == WaitingFor.RETRY:
        return Told(f"Retrying {row.step}", [upper_first(row_sentence(facts, row, "it"))])
    return Told(row_sentence(facts, row, row.step))


def _fan_out(facts: Facts, row: Step) -> Told:
    tally = facts.steps[row.step]
    return Told(
        f"Running {row.step}, {shard_count(tally)}",
        [_spread(tally) if tally.open > 1 else "", row_sentence(facts, row, _called(row))],
    )


def _called(row: Step) -> str:
    """The shard alone, ``480p``; but "1 waits" would be read as a count."""
    return f"shard {row.shard}" if row.shard.isdigit() else row.shard or row.step


def shard_count(tally: Tally) -> str:
    """``"2 of 3 shards done"``, with those that ended otherwise."""
    text = f"{tally.states[StepState.DONE]:,} of {number(tally.total, 'shard')} done"
    for state in (StepState.FAILED, StepState.CANCELLED, StepState.SKIPPED, StepState.REJECTED):
        if tally.states[state]:
            text += f", {tally.states[state]:,} {state}"
    return text


def _spread(tally: Tally) -> str:
    counts = [
        (tally.states[StepState.RUNNING], "running"),
        (tally.waits[WaitingFor.RETRY], "waiting to retry"),
        (tally.states[StepState.WAITING] - tally.waits[WaitingFor.RETRY], "waiting"),
        (tally.states[StepState.QUEUED], "queued"),
        (tally.states[StepState.PENDING], "not released yet"),
    ]
    return upper_first(", ".join(f"{n:,} {word}" for n, word in counts if n))


def overdue(facts: Facts) -> str:
    """That the deadline has passed, if it has."""
    deadline = facts.run.deadline_at
    if deadline is None or deadline >= facts.now or facts.terminal:
        return ""
    late = span((facts.now - deadline).total_seconds())
    return f"Its deadline passed at {clock(deadline, facts.now)}, {late} ago"


def _letters(facts: Facts) -> dict[str, str]:
    return dict(zip((node.id for node in facts.plan.nodes), facts.run.node_states, strict=False))


def _also(facts: Facts, row: Step) -> str:
    others = [step for step, tally in facts.steps.items() if tally.open and step != row.step]
    return f"{listed(sorted(others))} {'is' if len(others) == 1 else 'are'} under way too" if others else ""


def _then(facts: Facts, row: Step) -> str:
    letters = _letters(facts)
    pending = [step for step, letter in letters.items() if letter == NodeState.PENDING]
    if not pending:
        return "Then the run is done" if row.state != StepState.WAITING or row.waiting_for else ""
    nodes = facts.plan.nodes
    following = [nodes[i].id for i in facts.plan.by_id[row.step].successors if nodes[i].id in pending]
    first = (following or pending)[:3]
    more = len(pending) - len(first)
    if more:
        return f"Then {', '.join(first)} and {number(more, 'more step')}"
    return f"Then {listed(first)}"


def _otherwise(facts: Facts, row: Step) -> str:
    """What a failure for good would do, where a step may still fail."""
    spec = facts.plan.by_id[row.step].spec
    if spec.does != "handler":
        return ""
    name = _called(row)
    left = row.max_attempts - row.attempt if row.state == StepState.WAITING else 0
    when = f"If {name} fails {number(left, 'more time')}" if left > 1 else f"If {name} fails"
    if left == 1:
        when += " again"
    if spec.on_error == "continue":
        return f"{when}, the run goes on without it"
    undone = {step for step, tally in facts.steps.items() if tally.total and facts.plan.by_id[step].spec.compensate}
    count = len(undone) + len(facts.plan.spec.on_failure.compensate)
    end = facts.plan.spec.on_failure.terminal_state
    undo = f"undoes {number(len(undone), 'step')} and " if undone else "cleans up and " if count else ""
    return f"{when}, the run {undo}ends {end}" if left or row.attempt >= row.max_attempts else ""
