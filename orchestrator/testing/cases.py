"""Which cases a definition has: every fault at every boundary that the run without faults passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from orchestrator.core.states import Cause, Kind, StepState
from orchestrator.definitions.spec import CompensateSpec, StepSpec
from orchestrator.engine.plans import Plan
from orchestrator.models import Step
from orchestrator.testing import faults
from orchestrator.testing.faults import Fault
from orchestrator.testing.outcome import Case, Expect, Outcome

BASELINE = Case("0", "baseline", "baseline", (), Expect("done"))


class Maker:
    """Makes the cases of one definition, numbered from 1."""

    def __init__(self, plan: Plan, baseline: Outcome) -> None:
        self._plan = plan
        self._baseline = baseline
        self._numbers = count(1)

    def of_steps(self) -> list[Case]:
        """Cases at each step, and at the first, middle and last shard of each fan-out."""
        made: list[Case] = []
        for node in self._plan.nodes:
            rows = [r for r in self._baseline.rows if r.step == node.id and r.kind == Kind.STEP]
            if node.spec.does != "handler":
                made += [self._waiting(node.id)] if any(r.state == StepState.DONE for r in rows) else []
                continue
            for row in _first_middle_last([r for r in rows if r.attempt]):
                made += self._step(node.spec, row)
        return made

    def of_compensations(self, probes: Iterable[Outcome]) -> list[Case]:
        """Cases at each compensation. ``probes``: cases at steps that ended in an undo, to see it and to cause it."""
        made: list[Case] = []
        usable = [p for p in probes if p.ok and p.run.stop and p.case.group in ("fail", "cancel")]
        usable.sort(key=lambda p: p.case.group == "fail")
        for name, spec in self._plan.compensations.items():
            seen: dict[str, tuple[Step, Outcome]] = {}
            for probe in usable:  # the one of the latest step stays
                for row in probe.rows:
                    if row.step == name and row.kind == Kind.COMPENSATION and self._is_sure(row, probe):
                        seen[row.shard] = (row, probe)
            rows = sorted((row for row, _ in seen.values()), key=lambda r: r.undoes_id or 0)
            for row in _first_middle_last(rows):
                made += self._compensation(spec, row, seen[row.shard][1])
        return made

    def _is_sure(self, row: Step, probe: Outcome) -> bool:
        """Whether the probe's fault always leads to this compensation, and not only when branches ran as they did."""
        target = probe.case.target
        if target is None:
            return False
        if row.undoes_id is None:
            return True
        undone = next(r for r in probe.rows if r.pk == row.undoes_id)
        at = self._plan.by_id[target.step]
        before = self._plan.ancestors(at.index)
        return (undone.step, undone.shard) == (target.step, target.shard) or (
            self._plan.by_id[undone.step].index in before
        )

    def _step(self, spec: StepSpec, row: Step) -> Iterator[Case]:
        base = Expect()
        stopped = Expect(self._stopped_state(), Cause.ERROR, row=StepState.FAILED)
        fatal = stopped if not _tolerates(spec, self._baseline) else Expect("done", row=stopped.row)
        lost = base
        if not spec.retries:
            lost = Expect(fatal.state, Cause.WORKER_LOST if fatal is stopped else "", row=fatal.row)
        cancelled = Expect("cancelled", Cause.CANCELLED)
        yield from self._at(row, spec.retries, None, base=base, fatal=fatal, lost=lost, cancelled=cancelled)

    def _compensation(self, spec: CompensateSpec, row: Step, probe: Outcome) -> Iterator[Case]:
        ends = probe.case.expect
        base = Expect(ends.state, ends.cause, row=StepState.DONE)
        fatal = Expect(ends.state, ends.cause, undone=False, row=StepState.FAILED)
        lost = base if spec.retries else fatal
        # A cancel while compensating is refused, and the undo goes on.
        yield from self._at(row, spec.retries, probe, base=base, fatal=fatal, lost=lost, cancelled=base)

    def _at(
        self, row: Step, retries: int, probe: Outcome | None, *,
        base: Expect, fatal: Expect, lost: Expect, cancelled: Expect,
    ) -> Iterator[Case]:  # fmt: skip
        """All cases at one row; ``probe``: the case whose faults bring a run there, if it takes any."""
        before = probe.case.faults if probe else ()

        def case(group: str, title: str, what: str, expect: Expect, name: str = "", nth: int = 1) -> Case:
            fault = Fault(what, str(row.kind), row.step, row.shard, name, nth)
            return Case(str(next(self._numbers)), group, title, (*before, fault), expect)

        yield case("fail", "fail", faults.FAIL, fatal)
        if retries:
            yield case("retry", "fail once", faults.ERROR, base)
        yield case("kill", "kill before", faults.KILL_BEFORE, lost)
        for name, nth in _marks(row, probe or self._baseline):
            title = f"kill after {name}" + (f" ({nth})" if nth > 1 else "")
            yield case("kill", title, faults.KILL_EXTERNAL, lost, name, nth)
        yield case("kill", "kill at the end", faults.KILL_AFTER, lost)
        yield case("duplicate", "completed again", faults.DUPLICATE, base)
        yield case("duplicate", "completed twice", faults.DUPLICATE_FIRST, base)
        yield case("cancel", "cancel", faults.CANCEL, cancelled)

    def _waiting(self, step: str) -> Case:
        fault = Fault(faults.CANCEL_WAITING, str(Kind.STEP), step)
        expect = Expect("cancelled", Cause.CANCELLED)
        return Case(str(next(self._numbers)), "cancel", "cancel", (fault,), expect)

    def _stopped_state(self) -> str:
        return str(self._plan.spec.on_failure.terminal_state)


def _marks(row: Step, outcome: Outcome) -> list[tuple[str, int]]:
    """Calls to the outside that the row's first attempt marked in a run: each name, the first and the last time."""
    marked = Counter(
        str(e.note)
        for e in outcome.entries
        if e.event == "external" and e.attempt == 1 and e.row == (str(row.kind), row.step, row.shard)
    )
    return [(name, nth) for name, times in marked.items() for nth in sorted({1, times})]


def _tolerates(spec: StepSpec, baseline: Outcome) -> bool:
    """Whether the run goes on although one row of the step has failed for good."""
    if spec.on_error == "continue":
        return True
    if spec.fan_out is None or spec.join.mode == "all":
        return False
    total = sum(row.step == spec.id and row.kind == Kind.STEP for row in baseline.rows)
    if spec.join.mode == "settled":
        return True
    needed = spec.join.needed(total)
    return total - 1 >= needed


def _first_middle_last(rows: list[Step]) -> list[Step]:
    return [rows[i] for i in sorted({0, len(rows) // 2, len(rows) - 1})] if rows else []
