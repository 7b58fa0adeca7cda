"""The step that runs in this process right now, so that what its handler submits becomes its child."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class Ambient:
    """The running step, and how many children it has submitted in this attempt."""

    run_id: UUID
    step_id: int
    generation: int
    submitted: int = 0

    def next_key(self) -> str:
        """Default idempotency key of the next child: by the ordinal of the call, so that a retry finds it again."""
        return f"child:{self.step_id}:{self.generation}:{self.submitted}"


#: Set around a handler. Threads that it starts see it where it passes its context on (``contextvars.copy_context``).
current: ContextVar[Ambient | None] = ContextVar("switchyard_step", default=None)
