"""What must hold of a run that has ended, worked out again from its rows alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from orchestrator.core.lifecycle import run_may
from orchestrator.core.states import (
    NODE_TERMINAL,
    RUN_TERMINAL,
    STEP_TERMINAL,
    Kind,
    NodeState,
    RunState,
    StepState,
)
from orchestrator.definitions.spec import WorkflowSpec
from orchestrator.models import Attempt, AuditRecord, DeadLetter, FanOut, Outbox, Run, Step

_WELL = (StepState.DONE, StepState.SKIPPED)
_FAILED = (StepState.FAILED, StepState.REJECTED)


def broken(run: Run, rows: list[Step]) -> Iterator[str]:
    """Everything that does not agree, a sentence each."""
    spec = WorkflowSpec.model_validate(run.definition.spec)
    yield from _run(run, rows)
    yield from _nodes(run, rows, spec)
    yield from _fan_outs(run, rows)
    yield from _attempts(run, rows)
    yield from _dead_letters(run, rows)
    yield from _history(run)
    for row in Outbox.objects.filter(run_id=run.pk)[:3]:
        yield f"the outbox still holds a ticket of {row.step}"


def _run(run: Run, rows: list[Step]) -> Iterator[str]:
    still_open = sum(row.state not in STEP_TERMINAL for row in rows)
    if run.pending != still_open:
        yield f"the run counts {run.pending} open rows, there are {still_open}"
    if run.state not in RUN_TERMINAL:
        yield f"the run is left open: {run.state}"
    elif still_open:
        yield f"the run is {run.state} with {still_open} open rows"
    if run.state == RunState.DONE and (run.stop or run.cause or run.error):
        yield f"the run is done and has a cause: {run.cause or run.stop}"
    if run.state in (RunState.FAILED, RunState.CANCELLED) and not (run.stop and run.cause):
        yield f"the run is {run.state} without a cause"
    for child in Run.objects.filter(parent_run=run).exclude(state__in=RUN_TERMINAL)[:3]:
        yield f"its child run {child.pk} is left open: {child.state}"


def _nodes(run: Run, rows: list[Step], spec: WorkflowSpec) -> Iterator[str]:
    if len(run.node_states) != len(spec.steps):
        yield f"{len(run.node_states)} letters in node_states for {len(spec.steps)} steps"
        return
    states: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.kind == Kind.STEP:
            states[row.step].add(row.state)
    for step, letter in zip(spec.steps, run.node_states, strict=True):
        found = states[step.id]
        good = (
            letter in NODE_TERMINAL
            and bool(found)
            and not found - STEP_TERMINAL
            and (letter != NodeState.DONE or StepState.DONE in found or step.join.mode == "settled")
            and (letter != NodeState.SKIPPED or found == {StepState.SKIPPED})
            and (letter != NodeState.FAILED or bool(found & set(_FAILED)))
        )
        if not good:
            yield f"node_states says {letter!r} of {step.id}, its rows are {sorted(found) or 'missing'}"


def _fan_outs(run: Run, rows: list[Step]) -> Iterator[str]:
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.kind == Kind.STEP and row.shard:
            counted[row.step][row.state] += 1
    kept = {f.step: f for f in FanOut.objects.filter(run=run)}
    for step in sorted(counted.keys() ^ kept.keys()):
        yield f"fan-out {step} has {'counters' if step in kept else 'shards'} only"
    for step in sorted(counted.keys() & kept.keys()):
        by_state, fan_out = counted[step], kept[step]
        want = {
            "total": sum(by_state.values()),
            "open": sum(n for state, n in by_state.items() if state not in STEP_TERMINAL),
            "done": by_state[StepState.DONE],
            "skipped": by_state[StepState.SKIPPED],
            "failed": sum(by_state[s] for s in _FAILED),
            "cancelled": by_state[StepState.CANCELLED],
        }
        have = {name: getattr(fan_out, name) for name in want}
        if have != want:
            yield f"fan-out {step} counts {have}, its rows are {want}"


def _attempts(run: Run, rows: list[Step]) -> Iterator[str]:
    """Each attempt ended once in the record: a success on its row, anything else as a row of history."""
    history: dict[int, list[int]] = defaultdict(list)
    for attempt in Attempt.objects.filter(run=run).order_by("id"):
        history[attempt.step_row_id].append(attempt.attempt)
    for row in rows:
        well = row.state in _WELL and row.attempt > 0
        want = list(range(1, row.attempt + (0 if well else 1)))
        if history[row.pk] != want:
            ended = " and a success" if well else ""
            yield f"{row} is at attempt {row.attempt}; its record holds the ends of {history[row.pk]}{ended}"
        if row.attempt > row.max_attempts:
            yield f"{row} had attempt {row.attempt} of {row.max_attempts}"
        if row.started_at and row.finished_at and row.finished_at < row.started_at:
            yield f"{row} ended before it started"


def _dead_letters(run: Run, rows: list[Step]) -> Iterator[str]:
    letters = {letter.step_row_id: letter for letter in DeadLetter.objects.filter(run=run)}
    for row in rows:
        letter = letters.get(row.pk)
        if row.state in _FAILED and (letter is None or letter.state != "open" or letter.count != 1):
            yield f"{row} has failed for good and is not once in the dead letters"
        if row.state not in _FAILED and letter is not None:
            yield f"{row} is {row.state} and in the dead letters"


def _history(run: Run) -> Iterator[str]:
    """State changes are a legal path that ends, once, where the run is."""
    changes: list[Any] = list(AuditRecord.objects.filter(run=run, action="state").order_by("id"))
    state = str(RunState.RUNNING)
    for change in changes:
        before, after = change.before["state"], change.after["state"]
        if before != state or not run_may(before, after):
            yield f"the audit trail goes from {state} by {before} to {after}"
        state = after
    ends = sum(change.after["state"] in RUN_TERMINAL for change in changes)
    if state != run.state or (run.state in RUN_TERMINAL and ends != 1):
        yield f"the audit trail ends {ends} times, the last state is {state}; the run is {run.state}"
