"""What must hold of a run that has ended, worked out again from its rows alone.

Counters, node states, dead letters and history are the doctor's business; here is what holds only of a run at rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from orchestrator.core.states import RUN_TERMINAL, STEP_TERMINAL, Kind, RunState, StepState
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor import Scope, examine
from orchestrator.models import Attempt, AuditRecord, DeadLetter, Outbox, Run, Step

_WELL = (StepState.DONE, StepState.SKIPPED)


def broken(run: Run, rows: list[Step]) -> Iterator[str]:
    """Everything that does not agree, a sentence each."""
    for found in examine(caller_connection(), Scope(run=run.pk)).broken:
        yield f"doctor, {found.invariant}: {found.detail}"
    yield from _end(run, rows)
    yield from _attempts(run, rows)
    for letter in DeadLetter.objects.filter(run=run, count__gt=1):
        yield f"{letter.step} {letter.shard}".strip() + f" went {letter.count} times into the dead letters"
    for row in Outbox.objects.filter(run_id=run.pk)[:3]:
        yield f"the outbox still holds a ticket of {row.step}"


def _end(run: Run, rows: list[Step]) -> Iterator[str]:
    for row in rows:
        if row.state not in STEP_TERMINAL:
            yield f"{row} is left {row.state}"
    if run.state not in RUN_TERMINAL:
        yield f"the run is left {run.state}"
        return
    if run.state == RunState.DONE and (run.stop or run.cause or run.error):
        yield f"the run is done and has a cause: {run.cause or run.stop}"
    if run.state != RunState.DONE and not (run.stop and run.cause):
        yield f"the run is {run.state} without a cause"
    if run.state == RunState.DONE and any(row.kind == Kind.COMPENSATION for row in rows):
        yield "the run is done and was undone"
    ends = AuditRecord.objects.filter(run=run, action="state", after__state__in=sorted(RUN_TERMINAL)).count()
    if ends != 1:
        yield f"the audit trail ends the run {ends} times"
    for child in Run.objects.filter(parent_run=run).exclude(state__in=RUN_TERMINAL)[:3]:
        yield f"its child run {child.pk} is left {child.state}"


def _attempts(run: Run, rows: list[Step]) -> Iterator[str]:
    """Each attempt ended once in the record: a success on its row, anything else as a row of history."""
    history: dict[int, list[int]] = defaultdict(list)
    for attempt in Attempt.objects.filter(run=run).order_by("id"):
        history[attempt.step_row_id].append(attempt.attempt)
    for row in rows:
        well = row.state in _WELL and row.attempt > 0
        if history[row.pk] != list(range(1, row.attempt + (0 if well else 1))):
            ended = " and a success" if well else ""
            yield f"{row} is at attempt {row.attempt}; its record holds the ends of {history[row.pk]}{ended}"
        if row.attempt > row.max_attempts:
            yield f"{row} had attempt {row.attempt} of {row.max_attempts}"
        if row.started_at and row.finished_at and row.finished_at < row.started_at:
            yield f"{row} ended before it started"
