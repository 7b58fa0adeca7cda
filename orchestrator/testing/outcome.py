"""Cases of a fault matrix: what goes wrong, how the run must end, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from orchestrator.core.states import Kind
from orchestrator.engine.describe import run_json
from orchestrator.models import Run, Step
from orchestrator.testing.faults import Fault
from orchestrator.testing.ledger import Entry


@dataclass(frozen=True)
class Expect:
    """How a run must end. ``state`` empty: as the run without faults, row by row.

    ``undone``: whether its undo completes; ``row``: in which state the struck row ends (empty: not looked at).
    """

    state: str = ""
    cause: str = ""
    undone: bool = True
    row: str = ""


@dataclass(frozen=True)
class Case:
    """One run of the matrix. ``group`` is what ``--only`` names it by; ``title`` what the table says."""

    id: str
    group: str
    title: str
    faults: tuple[Fault, ...]
    expect: Expect

    @property
    def target(self) -> Fault | None:
        """The fault that the case is about; the ones before it only bring the run to where it strikes."""
        return self.faults[-1] if self.faults else None


@dataclass
class Outcome:
    """A case whose run has ended, as a ``ledger`` callback gets it."""

    case: Case
    run_id: UUID
    subject_id: str
    input: Any
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What was injected: ``fail``, ``kill after charge`` …; ``baseline`` without a fault."""
        return self.case.title

    @cached_property
    def run(self) -> Run:
        """The run's row."""
        return Run.objects.get(pk=self.run_id)

    @cached_property
    def rows(self) -> list[Step]:
        """Its steps, shards and compensations, in the order in which they were made."""
        return list(Step.objects.filter(run=self.run_id).order_by("id"))

    @cached_property
    def record(self) -> dict[str, Any]:
        """The run as the API answers it."""
        return run_json(self.run_id)

    @property
    def state(self) -> str:
        """The run's final state."""
        return str(self.run.state)

    @property
    def seconds(self) -> float | None:
        """From submission to the end; None without one."""
        run = self.run
        return (run.finished_at - run.submitted_at).total_seconds() if run.finished_at else None

    def calls(self, step: str, shard: str | None = None) -> int:
        """How often the handler of a step or compensation was called, of all shards or one."""
        return sum(e.event == "start" for e in self._of(step, shard))

    def externals(self, step: str, shard: str | None = None) -> list[str]:
        """Names of the calls to the outside that it marked, over all attempts."""
        return [str(e.note) for e in self._of(step, shard) if e.event == "external"]

    def started(self, step: str) -> bool:
        """Whether a step ever started, and with it what a compensation has to undo."""
        return any(row.first_started_at for row in self.rows if row.step == step and row.kind == Kind.STEP)

    def _of(self, step: str, shard: str | None) -> list[Entry]:
        return [e for e in self.entries if e.step == step and (shard is None or e.shard == shard)]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """``{case, kind, step, shard, ok, state, detail, run_id, seconds}``."""
        target = self.case.target
        return {
            "case": self.title,
            "kind": target.kind if target else "",
            "step": target.step if target else "",
            "shard": target.shard if target else "",
            "ok": self.ok,
            "state": self.state,
            "detail": "; ".join(self.problems),
            "run_id": str(self.run_id),
            "seconds": None if self.seconds is None else round(self.seconds, 2),
        }
