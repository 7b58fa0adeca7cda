"""The rows that an explanation of one run rests on. A fixed number of queries, whatever the number of shards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Case, Count, Max, Min, Q, Sum, Value, When

from orchestrator.core.states import STEP_LIVE, Kind, NodeState, RunState, StepState, WaitingFor, is_terminal
from orchestrator.engine.clock import record_now
from orchestrator.engine.plans import Plan
from orchestrator.engine.reading import plan
from orchestrator.models import AuditRecord, Lease, Pause, Run, Step

LIVE = sorted(STEP_LIVE)
#: Among the open rows the one that most needs an explanation comes first.
_RANK = Case(
    When(waiting_for=WaitingFor.RETRY, then=Value(0)),
    When(waiting_for=WaitingFor.APPROVAL, then=Value(1)),
    When(waiting_for__in=[WaitingFor.LOCK, WaitingFor.TOPIC], then=Value(2)),
    When(state=StepState.RUNNING, then=Value(3)),
    When(waiting_for=WaitingFor.CHILDREN, then=Value(4)),
    When(state=StepState.WAITING, then=Value(5)),
    When(state=StepState.QUEUED, then=Value(6)),
    default=Value(7),
)
_LIGHT = ("output", "item", "log")


#: Compensations that are looked at one by one.
UNDOS = 30
_FAILED_UNDO = (StepState.FAILED, StepState.REJECTED, StepState.CANCELLED)
#: Of the rows of one step in one state.
_SUMS = {
    "n": Count("id"),
    "start": Min("first_started_at"),
    "end": Max("finished_at"),
    "ready": Min("created_at"),
    "attempts": Sum("attempt"),
    "undone": Count("undone_at"),
    "undone_at": Max("undone_at"),
}


@dataclass
class Tally:
    """How many rows of one step (or of all compensations) stand in which state, and between which times.

    ``start``: the first start; ``ready``: when the first row was made; ``end``: the last end.
    """

    states: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    start: datetime | None = None
    end: datetime | None = None
    ready: datetime | None = None
    attempts: int = 0
    undone: int = 0
    undone_at: datetime | None = None

    @property
    def total(self) -> int:
        """All rows."""
        return self.states.total()

    @property
    def open(self) -> int:
        """Rows that are not terminal."""
        return sum(n for state, n in self.states.items() if not is_terminal(state))

    def add(self, sums: dict[str, Any]) -> None:
        """Count rows in one state in."""
        self.states[sums["state"]] += sums["n"]
        if sums["waiting_for"]:
            self.waits[sums["waiting_for"]] += sums["n"]
        for name, choose in (("start", min), ("ready", min), ("end", max), ("undone_at", max)):
            known = [at for at in (getattr(self, name), sums[name]) if at is not None]
            setattr(self, name, choose(known, default=None))
        self.attempts += sums["attempts"]
        self.undone += sums["undone"]


class Facts:
    """One run, its definition and what its rows say. Everything beyond the tallies is read when a sentence asks."""

    def __init__(self, run: Run, now: datetime | None = None) -> None:
        self.run = run
        self.now = now or record_now()
        self.plan: Plan = plan(run.definition_id)
        self.steps: dict[str, Tally] = defaultdict(Tally)
        self.undo = Tally()
        self._seen: dict[tuple[str, str], Step] = {}
        rows = Step.objects.filter(run=run).order_by().values("kind", "step", "state", "waiting_for")
        for sums in rows.annotate(**_SUMS):
            tally = self.undo if sums["kind"] == Kind.COMPENSATION else self.steps[sums["step"]]
            tally.add(dict(sums))

    def see(self, rows: Iterable[Step]) -> None:
        """Rows that the caller has read anyway: they are not asked for again."""
        self._seen |= {(row.step, row.shard): row for row in rows}

    @property
    def terminal(self) -> bool:
        """Whether the run is over."""
        return is_terminal(self.run.state)

    @cached_property
    def place(self) -> str:
        """The step that a run stands or stopped at; while it undoes, ``current_step`` names a compensation."""
        if self.run.current_step in self.plan.by_id:
            return self.run.current_step
        reached = (NodeState.ACTIVE, NodeState.FAILED, NodeState.CANCELLED)
        begun = [n.id for n, letter in zip(self.plan.nodes, self.run.node_states, strict=False) if letter in reached]
        return begun[-1] if begun else ""

    @cached_property
    def focus(self) -> Step | None:
        """The open row to talk about first: of the undo while that runs, else the one in most trouble."""
        rows = Step.objects.filter(run=self.run, state__in=LIVE).defer(*_LIGHT)
        # The rows may be newer than the run: one read as running may have begun to undo by now.
        undoing = self.run.state == RunState.COMPENSATING and self.undo.open
        rows = rows.filter(kind=Kind.COMPENSATION if undoing else Kind.STEP)
        return rows.annotate(rank=_RANK).order_by("rank", "ready_at", "ordinal", "id").first()

    @cached_property
    def failed_row(self) -> Step | None:
        """The row whose failure stopped the run."""
        error = self.run.error if isinstance(self.run.error, dict) else {}
        step, shard = error.get("step") or self.place, error.get("shard") or ""
        seen = self._seen.get((step, shard))
        return seen or Step.objects.filter(run=self.run, step=step, shard=shard).defer(*_LIGHT).first()

    @cached_property
    def stopped_rows(self) -> list[Step]:
        """Up to three rows that the run's cause (deadline, cancel) caught under way, the longest first."""
        rows = Step.objects.filter(run=self.run, kind=Kind.STEP, cause=self.run.cause, started_at__isnull=False)
        return list(rows.defer(*_LIGHT).order_by("started_at", "id")[:3])

    @cached_property
    def undos(self) -> list[Step]:
        """Compensations with what they undo, in the order in which they run; :data:`UNDOS` at most."""
        if not self.undo.total:
            return []
        rows = Step.objects.filter(run=self.run, kind=Kind.COMPENSATION).select_related("undoes")
        heavy = [*_LIGHT, *(f"undoes__{name}" for name in _LIGHT)]
        return list(rows.defer(*heavy).order_by("ordinal", "id")[:UNDOS])

    @cached_property
    def failed_undo(self) -> list[Step]:
        """Up to four compensations that failed for good."""
        if self.undo.total <= UNDOS:
            return [row for row in self.undos if row.state in _FAILED_UNDO][:4]
        rows = Step.objects.filter(run=self.run, kind=Kind.COMPENSATION, state__in=_FAILED_UNDO)
        return list(rows.defer(*_LIGHT).order_by("ordinal", "id")[:4])

    @cached_property
    def not_undone(self) -> dict[int, str]:
        """Rows whose undo failed for good, by id with their step; a thousand at most."""
        if not self.undo.states[StepState.FAILED]:
            return {}
        if self.undo.total <= UNDOS:
            failed = (row.undoes for row in self.undos if row.state == StepState.FAILED)
            return {row.pk: row.step for row in failed if row is not None}
        rows = Step.objects.filter(run=self.run, kind=Kind.COMPENSATION, state=StepState.FAILED, undoes__isnull=False)
        return {pk: step for pk, step in rows.values_list("undoes", "undoes__step")[:1000] if pk}

    @cached_property
    def cancel(self) -> AuditRecord | None:
        """Who cancelled the run last, and why."""
        return AuditRecord.objects.filter(run=self.run, action__in=("cancel", "force")).exclude(actor="engine").last()

    def workers(self, queue: str) -> int:
        """Live worker processes that serve a queue."""
        return Lease.objects.filter(queues__contains=[queue], ended_at=None, expires_at__gt=self.now).count()

    def pause(self, queue: str, *, undo: bool = False) -> Pause | None:
        """The pause that holds back the queue or (but for an undo) the workflow, if any."""
        held = Q(kind="queue", name=queue)
        if not undo:
            held |= Q(kind="workflow", name=self.run.workflow)
        return Pause.objects.filter(held, until__gt=self.now).order_by("until").last()

    def lock_holder(self, name: str) -> Step | None:
        """The running row that holds a lock."""
        held = Step.objects.filter(lock_name=name, state=StepState.RUNNING).select_related("run")
        return held.defer(*_LIGHT, "run__input", "run__output").first()

    def topic_running(self, name: str) -> int:
        """Rows that hold a slot of a topic."""
        return Step.objects.filter(topic=name, state=StepState.RUNNING).count()
