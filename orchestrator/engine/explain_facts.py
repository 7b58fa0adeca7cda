"""The rows that an explanation of one run rests on. A fixed number of queries, whatever the number of shards."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from django.db.models import Case, Count, Q, Value, When

from orchestrator.core.states import STEP_LIVE, Kind, RunState, StepState, WaitingFor, is_terminal
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


@dataclass
class Tally:
    """How many rows of one step (or of all compensations) stand in which state."""

    states: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All rows."""
        return self.states.total()

    @property
    def open(self) -> int:
        """Rows that are not terminal."""
        return sum(n for state, n in self.states.items() if not is_terminal(state))

    def add(self, state: str, waiting_for: str | None, count: int) -> None:
        """Count rows in."""
        self.states[state] += count
        if waiting_for:
            self.waits[waiting_for] += count


class Facts:
    """One run, its definition and what its rows say. Everything beyond the tallies is read when a sentence asks."""

    def __init__(self, run: Run, now: datetime | None = None) -> None:
        self.run = run
        self.now = now or record_now()
        self.plan: Plan = plan(run.definition_id)
        self.steps: dict[str, Tally] = defaultdict(Tally)
        self.undo = Tally()
        rows = Step.objects.filter(run=run).order_by().values_list("kind", "step", "state", "waiting_for")
        for kind, step, state, waiting_for, count in rows.annotate(n=Count("id")):
            tally = self.undo if kind == Kind.COMPENSATION else self.steps[step]
            tally.add(state, waiting_for, count)

    @property
    def terminal(self) -> bool:
        """Whether the run is over."""
        return is_terminal(self.run.state)

    @cached_property
    def place(self) -> str:
        """The step that a run stands or stopped at; while it undoes, ``current_step`` names a compensation."""
        if self.run.current_step in self.plan.by_id:
            return self.run.current_step
        begun = [n.id for n, letter in zip(self.plan.nodes, self.run.node_states, strict=False) if letter in "afc"]
        return begun[-1] if begun else ""

    @cached_property
    def focus(self) -> Step | None:
        """The open row to talk about first: of the undo while that runs, else the one in most trouble."""
        rows = Step.objects.filter(run=self.run, state__in=LIVE).defer(*_LIGHT)
        if self.run.state == RunState.COMPENSATING and self.undo.open:
            rows = rows.filter(kind=Kind.COMPENSATION)
        return rows.annotate(rank=_RANK).order_by("rank", "ready_at", "ordinal", "id").first()

    @cached_property
    def failed_row(self) -> Step | None:
        """The row whose failure stopped the run."""
        error = self.run.error if isinstance(self.run.error, dict) else {}
        where = Q(step=error.get("step") or self.place, shard=error.get("shard") or "")
        return Step.objects.filter(where, run=self.run).defer(*_LIGHT).first()

    @cached_property
    def stopped_rows(self) -> list[Step]:
        """Up to three rows that the run's cause (deadline, cancel) caught under way, the longest first."""
        rows = Step.objects.filter(run=self.run, kind=Kind.STEP, cause=self.run.cause, started_at__isnull=False)
        return list(rows.defer(*_LIGHT).order_by("started_at", "id")[:3])

    @cached_property
    def failed_undo(self) -> list[Step]:
        """Up to four compensations that failed for good."""
        rows = Step.objects.filter(run=self.run, kind=Kind.COMPENSATION)
        bad = rows.filter(state__in=[StepState.FAILED, StepState.REJECTED, StepState.CANCELLED])
        return list(bad.defer(*_LIGHT).order_by("ordinal", "id")[:4])

    @cached_property
    def not_undone(self) -> dict[int, str]:
        """Rows whose undo failed for good, by id with their step; a thousand at most."""
        if not self.undo.states[StepState.FAILED]:
            return {}
        rows = Step.objects.filter(run=self.run, kind=Kind.COMPENSATION, state=StepState.FAILED, undoes__isnull=False)
        return {pk: step for pk, step in rows.values_list("undoes", "undoes__step")[:1000] if pk}

    @cached_property
    def cancel(self) -> AuditRecord | None:
        """Who cancelled the run last, and why."""
        return AuditRecord.objects.filter(run=self.run, action="cancel").exclude(actor="engine").last()

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
