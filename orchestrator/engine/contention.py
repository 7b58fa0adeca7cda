"""Locks whose policy parks routine contention: what is meant for failures that nobody expected fills up with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection

from orchestrator.core.states import Cause
from orchestrator.engine.explain_words import number

#: So many in an hour at one step are routine, and no more than so many dead letters are looked at.
ROUTINE, BOUND = 5, 10_000

# Index: workflow_dead_letters_open.
_PARKED = """
SELECT r.workflow, r.step, sum(r.count)::int AS n FROM (
    SELECT workflow, step, cause, count FROM workflow_dead_letters
    WHERE state = 'open' AND last_at > now() - interval '1 hour' ORDER BY last_at DESC, id DESC LIMIT %(bound)s) r
WHERE r.cause = %(cause)s GROUP BY r.workflow, r.step HAVING sum(r.count) >= %(routine)s
ORDER BY n DESC, 1, 2 LIMIT 3"""


@dataclass(frozen=True)
class Flood:
    """A step that parks often what finds its lock held: how often within the last hour."""

    workflow: str
    step: str
    count: int

    @property
    def sentence(self) -> str:
        """What is the matter, and what to do."""
        return (
            f"{self.step} of {self.workflow} has parked {number(self.count, 'step')} within the hour because another "
            "held the lock. That is routine, and dead letters are for what nobody expects: with on_lock_conflict: "
            "requeue they wait for the lock, with reject they are recorded and nothing is kept"
        )


def floods() -> list[Flood]:
    """Up to three steps, the busiest first. One query."""
    given: dict[str, Any] = {"bound": BOUND, "cause": str(Cause.LOCK), "routine": ROUTINE}
    with connection.cursor() as cursor:
        cursor.execute(_PARKED, given)
        return [Flood(*row) for row in cursor.fetchall()]
