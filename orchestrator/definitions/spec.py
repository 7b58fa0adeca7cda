"""A definition as it is stored and as the engine reads it: every default filled in, durations in seconds.

This is the normalised form (``Definition.spec``), not what authors write; ``definitions.parse`` turns the one into the
other. ``WorkflowSpec.model_validate(definition.spec)`` reads it back unchanged.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core.graph import Graph


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BackoffSpec(_Spec):
    """Waits between attempts: ``first * factor ** n`` seconds, ``max`` at most, spread when ``jitter``."""

    first: float = Field(ge=0)
    factor: float = Field(ge=1)
    max: float = Field(ge=0)
    jitter: bool


class CompensateSpec(_Spec):
    """An undo. ``name`` is its row's step name, unique in the definition; ``undoes`` the ids of steps it undoes."""

    name: str
    handler: str
    retries: int = Field(ge=0)
    backoff: BackoffSpec
    timeout: float = Field(gt=0)
    queue: str
    undoes: list[str]


class FanOutSpec(_Spec):
    """Either the items themselves or a ``source``: ``step`` or ``step.path``, a list in that step's output."""

    items: list[Any] | None
    source: str | None


class JoinSpec(_Spec):
    """When a fan-out lets its successors start. ``count`` or ``percent`` (1 to 100) is set for ``at_least``."""

    mode: Literal["all", "settled", "at_least"]
    count: int | None
    percent: int | None

    def needed(self, total: int) -> int:
        """Of ``total`` shards, how many ``at_least`` asks for; a percentage is rounded up."""
        return -(-total * self.percent // 100) if self.percent is not None else min(self.count or 0, total)


class TopicSpec(_Spec):
    """A cluster-wide limit; ``limit`` None: as set at run time, else unlimited."""

    name: str
    limit: int | None


class ApprovalSpec(_Spec):
    """A decision by somebody of ``group`` or an admin; ``timeout`` in seconds."""

    group: str
    timeout: float | None
    on_timeout: Literal["fail", "approve", "skip"]


class StepSpec(_Spec):
    """A step. ``handler`` is empty for a step that waits, asks or starts a child run; see :attr:`does`."""

    id: str
    say: str | None
    handler: str
    queue: str
    timeout: float = Field(gt=0)
    retries: int = Field(ge=0)
    backoff: BackoffSpec
    compensate: CompensateSpec | None
    after: list[str]
    fan_out: FanOutSpec | None
    window: int | None
    join: JoinSpec
    join_timeout: float | None
    topic: TopicSpec | None
    lock: str | None
    on_lock_conflict: Literal["requeue", "reject", "dead_letter"] | None
    approval: ApprovalSpec | None
    wait: float | None
    workflow: str | None
    subject_id: str | None
    input: dict[str, Any] | str | None
    when: str | None
    on_error: Literal["fail", "continue"]

    @property
    def does(self) -> Literal["handler", "wait", "approval", "workflow"]:
        """What the step does: call its handler, wait for a time, ask for an approval, or start a child run."""
        if self.wait is not None:
            return "wait"
        if self.approval is not None:
            return "approval"
        return "workflow" if self.workflow is not None else "handler"


class OnFailureSpec(_Spec):
    """What follows a failure, after the undo of the steps' own; ``hold`` in seconds."""

    compensate: list[CompensateSpec]
    terminal_state: Literal["failed", "cancelled"]
    hold: float | None


class ScheduleSpec(_Spec):
    """When runs start by themselves. ``subject`` is a template of ``{date}``."""

    cron: str
    timezone: str
    subject: str
    overlap: Literal["skip", "allow"]


class ExclusiveSpec(_Spec):
    """At most one live run of the workflow, per subject or at all; others are refused or wait their turn."""

    by: Literal["subject", "workflow"]
    then: Literal["reject", "wait"]


class WorkflowSpec(_Spec):
    """One version of a workflow. ``deadline`` in seconds, from the start of the run."""

    workflow: str
    version: int = Field(ge=1)
    description: str
    owner: str
    runbook: str
    labels: dict[str, str]
    deadline: float = Field(gt=0)
    on_deadline: Literal["fail", "alert"]
    schedule: ScheduleSpec | None
    exclusive: ExclusiveSpec | None
    steps: list[StepSpec]
    on_failure: OnFailureSpec

    @property
    def graph(self) -> Graph:
        """``{step id: ids of the steps it comes after}``, for ``core.graph``."""
        return {step.id: step.after for step in self.steps}

    def step(self, step_id: str) -> StepSpec:
        """Raises: KeyError: when no step has this id."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)

    def compensations(self) -> list[CompensateSpec]:
        """Every undo: the steps' own in the order of the definition, then those of ``on_failure``."""
        own = [step.compensate for step in self.steps if step.compensate is not None]
        return own + self.on_failure.compensate
