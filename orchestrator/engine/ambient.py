"""The step that runs in this process right now, so that what its handler submits becomes its child."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True)
class Ambient:
    """The running step, and how many children it has submitted in this attempt."""

    run_id: UUID
    step_id: int
    generation: int
    submitted: int = 0
    _thread: int = field(default_factory=threading.get_ident)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _calls: Counter[str] = field(default_factory=Counter)

    def next_key(self, workflow: str, subject_id: str) -> str:
        """Default idempotency key of the next child: by the ordinal of the call, so that a retry finds it again.

        Threads that the handler starts come in any order: there calls are counted for each workflow and subject.
        """
        what = ""
        if threading.get_ident() != self._thread:
            what = hashlib.sha256(f"{workflow}\0{subject_id}".encode(errors="replace")).hexdigest()[:24] + ":"
        with self._lock:
            key = f"child:{self.step_id}:{self.generation}:{what}{self._calls[what]}"
            self._calls[what] += 1
            return key

    def note(self) -> None:
        """A child is being submitted: the step waits for it."""
        with self._lock:
            self.submitted += 1


#: Set around a handler. Threads that it starts see it where it passes its context on (``contextvars.copy_context``).
current: ContextVar[Ambient | None] = ContextVar("switchyard_step", default=None)
