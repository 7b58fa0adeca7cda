"""What workers and the engine pass between them: tickets to claim, who claims, and how an attempt ended."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from orchestrator.core.states import StepState


class Closure(NamedTuple):
    """How one attempt ended. ``output`` and ``error`` are JSON text; ``delay`` is seconds until the next try."""

    run_id: UUID
    step_id: int
    attempt: int
    token: int
    state: StepState
    cause: str | None = None
    delay: float | None = None
    output: str | None = None
    output_ref: str | None = None
    error: str | None = None


class End(NamedTuple):
    """How a row that no worker holds ends. ``error`` and ``output`` are JSON text."""

    step_id: int
    state: StepState
    cause: str | None = None
    error: str | None = None
    output: str | None = None


class Ticket(NamedTuple):
    """Work to be claimed: at most ``most`` queued rows of a step of a run."""

    run_id: UUID
    step: str
    most: int


class Holder(NamedTuple):
    """The worker process that claims: its lease and its name."""

    lease_id: int
    worker: str
