"""What is checked of each case: the end that it must have, the record, and what handlers really did."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from orchestrator.core.states import Kind, StepState, Undo
from orchestrator.engine.plans import Plan
from orchestrator.models import Step
from orchestrator.testing import faults, invariants
from orchestrator.testing.outcome import Outcome

#: Faults after which the row runs once more.
_AGAIN = (faults.ERROR, faults.KILL_BEFORE, faults.KILL_EXTERNAL, faults.KILL_AFTER)


def problems_of(outcome: Outcome, baseline: Outcome, plan: Plan) -> list[str]:
    """Everything that is wrong with a case, a sentence each; empty when all is well."""
    return [
        *_end(outcome, baseline),
        *_struck(outcome),
        *invariants.broken(outcome.run, outcome.rows),
        *_calls(outcome, baseline, plan),
        *_joins(outcome, plan),
        *_undo(outcome, plan),
    ]


def _end(outcome: Outcome, baseline: Outcome) -> Iterator[str]:
    expect, run = outcome.case.expect, outcome.run
    state = expect.state or baseline.run.state
    if run.state != state:
        why = (run.error or {}).get("message", "")
        yield f"the run ended {run.state}, not {state}" + (f": {why}" if why else "")
    if expect.cause and run.cause != expect.cause:
        yield f"its cause is {run.cause}, not {expect.cause}"
    target = outcome.case.target
    if expect.row and target:
        states = {r.state for r in outcome.rows if (r.kind, r.step, r.shard) == _row(target)}
        if states != {expect.row}:
            yield f"{target.step} {target.shard}".strip() + f" is {', '.join(states) or 'missing'}, not {expect.row}"
    if not expect.state and run.state == state:
        have, want = _states(outcome), _states(baseline)
        for key in sorted(have.keys() | want.keys()):
            if have.get(key) != want.get(key):
                yield f"{' '.join(key).strip()} is {have.get(key)}; without the fault it is {want.get(key)}"


def _row(fault: faults.Fault) -> tuple[str, str, str]:
    return (fault.kind, fault.step, fault.shard)


def _states(outcome: Outcome) -> dict[tuple[str, str], str]:
    return {(row.step, row.shard): row.state for row in outcome.rows}


def _struck(outcome: Outcome) -> Iterator[str]:
    """The fault was really injected; a case that nothing happened in shows nothing."""
    for fault in outcome.case.faults:
        if fault.what == faults.CANCEL_WAITING:
            continue
        if not any(e.event == "fault" and e.row == _row(fault) for e in outcome.entries):
            what = f"the call {fault.name!r} was not marked" if fault.name else "its handler was not called"
            yield f"nothing was injected into {fault.step} {fault.shard}".strip() + f": {what} in this run"


def _calls(outcome: Outcome, baseline: Outcome, plan: Plan) -> Iterator[str]:
    """How often handlers were called, and how often they called out."""
    usual, found = _counted(baseline), _counted(outcome)
    again = {_row(f) for f in outcome.case.faults if f.what in _AGAIN}
    for row in outcome.rows:
        key = (str(row.kind), row.step, row.shard)
        calls, once = found[key], usual[key]
        for attempt, times in calls.starts.items():
            if times > 1:
                yield f"attempt {attempt} of {row} was run {times} times"
        handled = row.kind == Kind.COMPENSATION or plan.by_id[row.step].spec.does == "handler"
        if handled and sorted(calls.starts) != list(range(1, row.attempt + 1)):
            yield f"{row} is at attempt {row.attempt}; its handler was called for {sorted(calls.starts)}"
        called, most = calls.starts.total(), max(once.starts.total(), 1) + (key in again)
        if called > most:
            yield f"the handler of {row} was called {called} times, {most} at most were to be expected"
        for name, times in calls.marks.items():
            if times > max(once.marks[name], 1) * max(called, 1):
                yield f"{row} called {name!r} {times} times in {called} attempts"
    for key in found.keys() - {(str(r.kind), r.step, r.shard) for r in outcome.rows}:
        yield f"a handler ran for {' '.join(key).strip()}, which is not in the record"


@dataclass
class _Counts:
    """Of one row: how often each attempt was started, how often each call to the outside was marked."""

    starts: Counter[int] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)


def _counted(outcome: Outcome) -> dict[tuple[str, str, str], _Counts]:
    counts: dict[tuple[str, str, str], _Counts] = defaultdict(_Counts)
    for entry in outcome.entries:
        if entry.event == "start":
            counts[entry.row].starts[entry.attempt] += 1
        elif entry.event == "external":
            counts[entry.row].marks[str(entry.note)] += 1
    return counts


def _joins(outcome: Outcome, plan: Plan) -> Iterator[str]:
    """No step was called before all that it comes after had ended."""
    place = {id(entry): i for i, entry in enumerate(outcome.entries)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for entry in outcome.entries:
        if entry.kind == Kind.STEP and entry.event == "start":
            first.setdefault(entry.step, place[id(entry)])
        if entry.kind == Kind.STEP and entry.event in ("end", "raise", "fault"):
            last[entry.step] = place[id(entry)]
    for node in plan.nodes:
        for parent in (plan.nodes[i] for i in node.after):
            early = node.id in first and parent.id in last and last[parent.id] > first[node.id]
            if early and parent.spec.join.mode == "all":
                yield f"{node.id} was called before {parent.id} had ended"


def _undo(outcome: Outcome, plan: Plan) -> Iterator[str]:
    """Compensations of every started step, once, in reverse order of start, then those of ``on_failure``."""
    made = [row for row in outcome.rows if row.kind == Kind.COMPENSATION]
    started = [row for row in outcome.rows if row.kind == Kind.STEP and row.first_started_at]
    stopped = outcome.run.stop is not None
    own = [row for row in started if plan.by_id[row.step].spec.compensate] if stopped else []
    wanted = Counter(row.pk for row in own)
    have = Counter(row.undoes_id for row in made if row.undoes_id)
    for row in own:
        if have[row.pk] != 1:
            yield f"{row} had started, and its compensation was made {have[row.pk]} times"
    for row in made:
        if row.undoes_id and row.undoes_id not in wanted:
            yield f"compensation {row} undoes what had not started"
    on_failure = [entry.name for entry in plan.spec.on_failure.compensate] if stopped and started else []
    if sorted(on_failure) != sorted(row.step for row in made if not row.undoes_id):
        yield f"on_failure asks for {on_failure}, made were {[row.step for row in made if not row.undoes_id]}"
    yield from _undo_end(outcome, made)
    yield from _undo_order(outcome, own, made, on_failure)


def _undo_end(outcome: Outcome, made: list[Step]) -> Iterator[str]:
    want = None if not made else Undo.DONE if outcome.case.expect.undone else Undo.PARTIAL
    if outcome.run.compensation != want:
        yield f"its undo is {outcome.run.compensation}, not {want}"
    target = outcome.case.target
    for row in made:
        struck = target is not None and _row(target) == (row.kind, row.step, row.shard)
        if row.state != StepState.DONE and (outcome.case.expect.undone or not struck):
            why = (row.error or {}).get("message", "")
            yield f"compensation {row} is {row.state}: {why}"


def _undo_order(outcome: Outcome, own: list[Step], made: list[Step], on_failure: list[str]) -> Iterator[str]:
    """Waves, one after the other: what was undone together, then what had started before it."""
    name_of = {row.undoes_id: (row.step, row.shard) for row in made if row.undoes_id}
    order = sorted(own, key=lambda row: (row.first_started_at, row.pk), reverse=True)
    waves = [{name_of[r.pk] for r in group if r.pk in name_of} for _, group in groupby(order, key=lambda r: r.step)]
    waves += [{(name, "")} for name in on_failure]
    events = [e for e in outcome.entries if e.kind == Kind.COMPENSATION]
    for earlier, later in pairwise([wave for wave in waves if wave]):
        ends = [i for i, e in enumerate(events) if (e.step, e.shard) in earlier]
        begins = [i for i, e in enumerate(events) if (e.step, e.shard) in later and e.event == "start"]
        if ends and begins and max(ends) > min(begins):
            yield f"{_names(later)} was undone before {_names(earlier)} had been"


def _names(wave: set[tuple[str, str]]) -> str:
    return ", ".join(sorted(f"{step} {shard}".strip() for step, shard in wave))
