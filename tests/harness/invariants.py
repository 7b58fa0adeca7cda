"""What must hold of the record at the end of every test, worked out again from the rows alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from uuid import UUID

from orchestrator.core.lifecycle import run_may
from orchestrator.core.states import (
    NODE_TERMINAL,
    RUN_TERMINAL,
    STEP_TERMINAL,
    Cause,
    Kind,
    NodeState,
    RunState,
    StepState,
    Undo,
)
from orchestrator.models import Attempt, AuditRecord, DeadLetter, FanOut, Lease, Outbox, Run, Step

_FAILED = (StepState.FAILED, StepState.REJECTED)


def check_invariants(run_ids: Iterable[UUID] | None = None, *, at_rest: bool = True) -> None:
    """Fails with everything that is wrong. ``at_rest``: nothing runs any more, so nothing may be on its way either."""
    problems: list[str] = []
    runs = list(Run.objects.all() if run_ids is None else Run.objects.filter(pk__in=list(run_ids)))
    steps: dict[UUID, list[Step]] = defaultdict(list)
    for row in Step.objects.filter(run__in=runs).order_by("id"):
        steps[row.run_id].append(row)
    fan_outs: dict[UUID, list[FanOut]] = defaultdict(list)
    for fan_out in FanOut.objects.filter(run__in=runs):
        fan_outs[fan_out.run_id].append(fan_out)
    for run in runs:
        rows = steps[run.pk]
        found = [*_run(run, rows), *_nodes(run, rows), *_fan_outs(run, rows, fan_outs[run.pk]), *_history(run)]
        problems += [f"run {run.workflow} {run.pk}: {text}" for text in found]
        for row in rows:
            problems += [f"run {run.workflow} {run.pk}, {row}: {text}" for text in _row(run, row)]
    problems += _dead_letters(runs)
    problems += _claims(runs)
    if at_rest and run_ids is None:
        problems += [f"outbox still holds {row}" for row in Outbox.objects.all()[:5]]
    assert not problems, "\n".join(problems)


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
    if run.state == RunState.COMPENSATING and not any(row.state not in STEP_TERMINAL for row in undo):
        yield "compensating with nothing to do"
    if run.compensation == Undo.DONE and any(row.state != StepState.DONE for row in undo):
        yield "its undo is called done, but is not"
    if not run.retries and run.compensation == Undo.PARTIAL and all(row.state == StepState.DONE for row in undo):
        yield "its undo is called partial, but all of it is done"


def _nodes(run: Run, rows: list[Step]) -> Iterable[str]:
    """Each letter of ``node_states`` against the rows of its step."""
    spec = run.definition.spec["steps"]
    by_step = defaultdict(list)
    for row in rows:
        if row.kind == Kind.STEP:
            by_step[row.step].append(row)
    letters = dict(zip([s["id"] for s in spec], run.node_states, strict=True))
    for step in spec:
        members, letter = by_step[step["id"]], letters[step["id"]]
        states = {row.state for row in members}
        if letter == NodeState.PENDING and states - {StepState.PENDING}:
            yield f"{step['id']} is pending, its rows are {states}"
        if letter == NodeState.ACTIVE and not states - STEP_TERMINAL:
            yield f"{step['id']} is active, its rows are {states}"
        if letter in NODE_TERMINAL and (states - STEP_TERMINAL or not members):
            yield f"{step['id']} has ended ({letter}), its rows are {states}"
        if letter == NodeState.DONE and StepState.DONE not in states and step["join"]["mode"] != "settled":
            yield f"{step['id']} is done, its rows are {states}"
        if letter == NodeState.SKIPPED and states != {StepState.SKIPPED}:
            yield f"{step['id']} is skipped, its rows are {states}"
        if run.state in RUN_TERMINAL and letter not in NODE_TERMINAL:
            yield f"{run.state}, but {step['id']} is {letter}"
        if run.state == RunState.DONE and letter not in (NodeState.DONE, NodeState.SKIPPED, NodeState.FAILED):
            yield f"done, but {step['id']} is {letter}"
        started = [row for row in members if row.attempt]
        before = [letters[name] for name in step["after"]]
        if started and any(b in (NodeState.PENDING, NodeState.BLOCKED) for b in before) and not run.retries:
            yield f"{step['id']} has run, but what it comes after is {before}"


def _fan_outs(run: Run, rows: list[Step], fan_outs: list[FanOut]) -> Iterable[str]:
    counted = defaultdict(Counter)
    for row in rows:
        if row.kind == Kind.STEP and row.shard:
            counted[row.step][row.state] += 1
    if set(counted) != {f.step for f in fan_outs}:
        yield f"fan-outs {sorted(f.step for f in fan_outs)}, but shards of {sorted(counted)}"
    for fan_out in fan_outs:
        states = counted[fan_out.step]
        want = {
            "total": sum(states.values()),
            "open": sum(n for state, n in states.items() if state not in STEP_TERMINAL),
            "done": states[StepState.DONE],
            "skipped": states[StepState.SKIPPED],
            "failed": sum(states[s] for s in _FAILED),
            "cancelled": states[StepState.CANCELLED],
        }
        have = {name: getattr(fan_out, name) for name in want}
        if have != want:
            yield f"fan-out {fan_out.step} counts {have}, its rows {want}"
        out = sum(states[s] for s in (StepState.QUEUED, StepState.RUNNING, StepState.WAITING))
        if out > fan_out.window:
            yield f"fan-out {fan_out.step} has {out} shards out, its window is {fan_out.window}"


def _row(run: Run, row: Step) -> Iterable[str]:
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
    numbers = list(Attempt.objects.filter(step_row=row).order_by("id").values_list("attempt", flat=True))
    if numbers != sorted(set(numbers)) or any(n > row.attempt for n in numbers):
        yield f"history holds attempts {numbers}, the row is at {row.attempt}"


def _waits(run: Run, step: str) -> bool:
    return any(s["id"] == step and s["wait"] is not None for s in run.definition.spec["steps"])


def _history(run: Run) -> Iterable[str]:
    """The run's state changes are a legal path, in order, and only a person leaves a final state."""
    state, person = str(RunState.RUNNING), False
    for record in AuditRecord.objects.filter(run=run).order_by("id"):
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
            if state not in (RunState.FAILED, RunState.CANCELLED):
                yield f"retried while {state}"
            state = str(RunState.RUNNING)
    if state != run.state:
        yield f"history ends in {state}, the run is {run.state}"
    if person and run.state in RUN_TERMINAL:
        yield "was retried and says nothing of its end"


def _dead_letters(runs: list[Run]) -> Iterable[str]:
    """Exactly one open dead letter for each row that has failed for good; a rejected one may have one."""
    failed = set(Step.objects.filter(run__in=runs, state=StepState.FAILED).values_list("pk", flat=True))
    rejected = set(Step.objects.filter(run__in=runs, state=StepState.REJECTED).values_list("pk", flat=True))
    letters = {letter.step_row_id: letter for letter in DeadLetter.objects.filter(run__in=runs)}
    for pk in failed - letters.keys():
        yield f"row {pk} has failed and is not in the dead letters"
    for pk, letter in letters.items():
        if letter.state == "open" and pk not in failed | rejected:
            yield f"dead letter {letter} is open, its row has not failed"


def _claims(runs: list[Run]) -> Iterable[str]:
    for row in Step.objects.filter(run__in=runs, state=StepState.RUNNING):
        lease = Lease.objects.filter(pk=row.lease_id).first()
        if lease is None or lease.ended_at:
            yield f"{row} is running without a live lease"
    blocked = Step.objects.filter(run__in=runs, state=StepState.SKIPPED, cause=Cause.BLOCKED, attempt__gt=0)
    for row in blocked.exclude(run__retries__gt=0)[:5]:
        yield f"{row} is called unreachable, but has been tried {row.attempt} times"
