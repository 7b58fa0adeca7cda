"""What must hold of the record at the end of every test, worked out again from the rows alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from orchestrator.core.lifecycle import run_may
from orchestrator.core.states import (
    RUN_TERMINAL,
    STEP_TERMINAL,
    Cause,
    DeadLetterState,
    Kind,
    NodeState,
    RunState,
    StepState,
    Undo,
)
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor import INVARIANTS, Scope, examine
from orchestrator.models import Attempt, AuditRecord, DeadLetter, FanOut, Lease, Outbox, Run, Step


def check_invariants(run_ids: Iterable[UUID] | None = None, *, at_rest: bool = True) -> None:
    """Fails with everything that is wrong. ``at_rest``: nothing runs any more, so nothing may be on its way either."""
    run_ids = None if run_ids is None else list(run_ids)
    problems = list(_doctor(run_ids))
    chosen = Run.objects.all() if run_ids is None else Run.objects.filter(pk__in=run_ids)
    runs = list(chosen.select_related("definition"))
    attempts: dict[int, list[int]] = defaultdict(list)
    for row_id, number in Attempt.objects.filter(run__in=chosen).order_by("id").values_list("step_row_id", "attempt"):
        attempts[row_id].append(number)
    history: dict[UUID | None, list[AuditRecord]] = defaultdict(list)
    for record in AuditRecord.objects.filter(run__in=chosen).order_by("id"):
        history[record.run_id].append(record)
    steps: dict[UUID, list[Step]] = defaultdict(list)
    for row in Step.objects.filter(run__in=runs).order_by("id"):
        steps[row.run_id].append(row)
    fan_outs: dict[UUID, list[FanOut]] = defaultdict(list)
    for fan_out in FanOut.objects.filter(run__in=runs):
        fan_outs[fan_out.run_id].append(fan_out)
    for run in runs:
        rows = steps[run.pk]
        found = [*_run(run, rows), *_nodes(run, rows), *_windows(rows, fan_outs[run.pk])]
        found += _history(run, history[run.pk])
        problems += [f"run {run.workflow} {run.pk}: {text}" for text in found]
        for row in rows:
            problems += [f"run {run.workflow} {run.pk}, {row}: {text}" for text in _row(run, row, attempts[row.pk])]
    problems += _claims(runs)
    if at_rest and run_ids is None:
        problems += [f"outbox still holds {row}" for row in Outbox.objects.all()[:5]]
    assert not problems, "\n".join(problems)


def _settled(ids: set[int]) -> set[int]:
    """Of these undos those that somebody has settled with a note."""
    rows = (
        DeadLetter.objects.filter(step_row__in=ids, state=DeadLetterState.SETTLED) if ids else DeadLetter.objects.none()
    )
    return set(rows.values_list("step_row_id", flat=True))


def _run(run: Run, rows: list[Step]) -> Iterable[str]:
    open_rows = sum(row.state not in STEP_TERMINAL for row in rows)
    if run.pending != open_rows:
        yield f"pending is {run.pending}, but {open_rows} rows are open"
    if run.state in RUN_TERMINAL and open_rows:
        yield f"{run.state} with open rows"
    if run.state == RunState.DONE and (run.stop or run.cause or run.error):
        yield f"done, but stop is {run.stop}, cause {run.cause}"
    if run.state in (RunState.FAILED, RunState.CANCELLED) and not (run.stop and run.cause and run.stopped_at):
        yield f"{run.state} without saying why"
    if run.state in RUN_TERMINAL and run.exclusive_key:
        yield "still excludes others"
    undo = [row for row in rows if row.kind == Kind.COMPENSATION]
    held = run.compensation == Undo.PENDING and run.hold_until is not None
    if run.state == RunState.COMPENSATING and not held and not any(row.state not in STEP_TERMINAL for row in undo):
        yield "compensating with nothing to do"
    not_done = {row.pk for row in undo if row.state != StepState.DONE}
    if run.compensation == Undo.DONE and not_done - _settled(not_done):
        yield "its undo is called done, but is not"
    if not run.retries and run.compensation == Undo.PARTIAL and all(row.state == StepState.DONE for row in undo):
        yield "its undo is called partial, but all of it is done"


def _nodes(run: Run, rows: list[Step]) -> Iterable[str]:
    """A step has run only after what it comes after; whether the letters fit the rows the doctor knows."""
    spec = run.definition.spec["steps"]
    letters = dict(zip([s["id"] for s in spec], run.node_states, strict=True))
    ran = {row.step for row in rows if row.kind == Kind.STEP and row.attempt}
    for step in spec:
        before = [letters[name] for name in step["after"]]
        if step["id"] in ran and any(b in (NodeState.PENDING, NodeState.BLOCKED) for b in before) and not run.retries:
            yield f"{step['id']} has run, but what it comes after is {before}"


def _windows(rows: list[Step], fan_outs: list[FanOut]) -> Iterable[str]:
    for fan_out in fan_outs:
        shards = [row for row in rows if row.step == fan_out.step and row.shard and row.kind == Kind.STEP]
        out = sum(row.state in (StepState.QUEUED, StepState.RUNNING, StepState.WAITING) for row in shards)
        if out > fan_out.window:
            yield f"fan-out {fan_out.step} has {out} shards out, its window is {fan_out.window}"


def _row(run: Run, row: Step, numbers: list[int]) -> Iterable[str]:
    if row.attempt > row.max_attempts:
        yield f"attempt {row.attempt} of {row.max_attempts}"
    if row.state == StepState.DONE and row.attempt < 1 and row.kind == Kind.STEP and not _waits(run, row.step):
        yield "done without an attempt"
    if row.state in (StepState.FAILED, StepState.CANCELLED, StepState.REJECTED) and not row.cause:
        yield f"{row.state} without a cause"
    if row.state == StepState.DONE and (row.cause or row.error):
        yield f"done, with cause {row.cause}, error {row.error}"
    if row.state == StepState.FAILED and not row.error:
        yield "failed without an error"
    if row.first_started_at and row.started_at and row.first_started_at > row.started_at:
        yield "first started after its last start"
    if row.started_at and row.finished_at and row.finished_at < row.started_at:
        yield "finished before it started"
    if run.state in RUN_TERMINAL and row.finished_at and run.finished_at and row.finished_at > run.finished_at:
        yield "finished after its run"
    if numbers != sorted(set(numbers)) or any(n > row.attempt for n in numbers):
        yield f"history holds attempts {numbers}, the row is at {row.attempt}"


def _waits(run: Run, step: str) -> bool:
    """Whether the step has no handler: a timer, an approval or a child run."""
    return any(s["id"] == step and not s["handler"] for s in run.definition.spec["steps"])


def _history(run: Run, records: list[AuditRecord]) -> Iterable[str]:
    """The run's state changes are a legal path, in order, and only a person leaves a final state."""
    state, person = str(RunState.RUNNING), False
    for record in records:
        if record.action == "state":
            after = record.after["state"]
            if record.before["state"] != state:
                yield f"history says {record.before['state']} where it was {state}"
            if not run_may(state, after):
                yield f"went from {state} to {after}"
            state, person = after, False
        elif record.action == "retry":
            person = True
            if not (record.actor and record.reason and record.role):
                yield f"a {record.action} without actor, role or reason"
            held = state == RunState.COMPENSATING and run.definition.spec["on_failure"]["hold"] is not None
            if state not in (RunState.FAILED, RunState.CANCELLED) and not held:
                yield f"retried while {state}"
            state = str(RunState.RUNNING)
        elif record.action == "replay" and "state" in record.after:  # of an undo: its run compensates again
            state, person = record.after["state"], True
    if state != run.state:
        yield f"history ends in {state}, the run is {run.state}"
    if person and run.state in RUN_TERMINAL:
        yield "was retried and says nothing of its end"


#: Tests move due times and end leases by hand, and often have no dispatcher: the clocks are not looked at.
_CLOCKS = {"claims", "leases", "due", "deadline", "dispatcher"}


def _doctor(run_ids: Iterable[UUID] | None) -> Iterable[str]:
    """What the product's own doctor finds."""
    scopes = [Scope.everything()] if run_ids is None else [Scope(run=run_id) for run_id in run_ids]
    wanted = [invariant for invariant in INVARIANTS if invariant.name not in _CLOCKS]
    for scope in scopes:
        found = examine(caller_connection(), scope, wanted)
        yield from (f"doctor, {b.invariant} {b.id}: {b.detail}" for b in found.broken)
        yield from (f"doctor had no time for {name}" for name in found.unchecked)


def _claims(runs: list[Run]) -> Iterable[str]:
    for row in Step.objects.filter(run__in=runs, state=StepState.RUNNING):
        lease = Lease.objects.filter(pk=row.lease_id).first()
        if lease is None or lease.ended_at:
            yield f"{row} is running without a live lease"
    blocked = Step.objects.filter(run__in=runs, state=StepState.SKIPPED, cause=Cause.BLOCKED, attempt__gt=0)
    for row in blocked.exclude(run__retries__gt=0)[:5]:
        yield f"{row} is called unreachable, but has been tried {row.attempt} times"
