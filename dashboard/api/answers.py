"""Shapes that the API answers, for the OpenAPI document. ``engine.describe`` builds the answers themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpResponse, JsonResponse
from pydantic import BaseModel, ConfigDict, Field


def answer(data: Any, status: int = 200) -> HttpResponse:
    """The data as JSON."""
    return JsonResponse(data, DjangoJSONEncoder, safe=False, status=status)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class ErrorBody(_Shape):
    """What went wrong."""

    code: str
    message: str
    field: str | None = Field(None, description="The input at fault.")


class Error(_Shape):
    """Any answer with a status of 400 or above."""

    error: ErrorBody


class WaitingFor(_Shape):
    """What a waiting step waits for."""

    kind: str = Field(description="retry, timer, approval, children, lock or topic")
    name: str | None
    until: datetime | None
    holder: str | None


class StepError(_Shape):
    """The error of the last attempt that failed."""

    type: str
    message: str


class StepItem(_Shape):
    """A step, a shard of a fan-out, or a compensation."""

    id: str | None = Field(description="null: not reached yet.")
    step: str
    shard: str
    kind: str
    state: str
    cause: str | None
    attempt: int = Field(description="0 before the first.")
    max_attempts: int
    progress: float | None
    queue: str
    waiting_for: WaitingFor | None
    started_at: datetime | None
    finished_at: datetime | None
    output: Any
    error: StepError | None
    children: list[UUID]


class Parent(_Shape):
    """The step that submitted a child run."""

    run_id: UUID
    step: str


class Eta(_Shape):
    """When the run is likely to end."""

    p50: datetime | None
    p90: datetime | None


class RunItem(_Shape):
    """A run without payloads, as lists show it."""

    id: UUID
    workflow: str
    version: int
    subject_id: str
    labels: dict[str, Any]
    state: str
    cause: str | None
    compensation: str | None = Field(description="null, pending, running, done or partial")
    progress: float
    where: str
    current_steps: list[str]
    pending: int = Field(description="Open shards and steps.")
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    updated_at: datetime
    cancel_requested_at: datetime | None
    eta: Eta | None
    at_risk: bool
    parent: Parent | None


class Run(RunItem):
    """A whole run."""

    input: dict[str, Any]
    output: Any
    steps: list[StepItem]
    compensations: list[StepItem]


class RunPage(_Shape):
    """A page of runs, newest first."""

    items: list[RunItem]
    next_cursor: str | None


class Runs(_Shape):
    """Runs in the order of the request."""

    items: list[RunItem]


class RetryItem(_Shape):
    """A step that a retry would execute again."""

    step: str
    shard: str
    why: str
    attempt: int
    side_effects: list[str] = Field(
        description="Calls that earlier attempts marked with ctx.external; they would be made again."
    )


class RetryPreview(_Shape):
    """What a retry would do."""

    dry_run: bool
    steps: list[RetryItem]
    kept: list[str]
    side_effects: dict[str, int] = Field(description="How many of the steps would make each of those calls again.")


class SubjectAnswer(_Shape):
    """Where a subject's work stands."""

    subject_id: str
    answer: str = Field(description="For support.")
    reply: str = Field(description="For the customer, without internals.")
    runs: list[RunItem]


class DeadLetterItem(_Shape):
    """A permanent failure of one step, shard or compensation."""

    id: int
    run_id: UUID
    workflow: str
    version: int
    subject_id: str
    step: str
    shard: str
    state: str
    cause: str
    error: StepError | None
    fingerprint: str
    attempts: int
    count: int
    first_at: datetime
    last_at: datetime
    closed_at: datetime | None
    note: str


class DeadLetterPage(_Shape):
    """A page of dead letters, latest first."""

    items: list[DeadLetterItem]
    next_cursor: str | None


class Items(_Shape):
    """A whole list."""

    items: list[dict[str, Any]]


class TopicItem(_Shape):
    """A cluster-wide limit and what it holds."""

    name: str
    limit: int | None
    origin: Literal["runtime", "settings", "definition", "none"]
    set_by: str
    defined: int | None
    configured: int | None
    default: int | None = Field(description="The limit that counts when none is set at run time.")
    default_origin: Literal["settings", "definition", "none"]
    running: int
    waiting: int
    updated_at: datetime | None
