"""What every invariant is made of: where it looks, what it answers, how long it may take.

An invariant is a function of a connection and a :class:`Scope` that returns what is broken. It reads with one
statement, so that it sees one state of the record whatever happens meanwhile; what may be late for a moment without
being wrong (a lease, a due time) counts only when it has been so for longer than the sweeper needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from orchestrator.core.actor import Actor
from orchestrator.core.states import RUN_LIVE, RUN_TERMINAL, STEP_LIVE, STEP_TERMINAL
from orchestrator.engine.db import Connection, rows

#: Mends one thing under its lock and writes the audit record; says what was done, or None where there was nothing.
Repair = Callable[[Connection, Actor], str | None]
LIMIT = 100
WEEK = 7 * 86_400.0


@dataclass(frozen=True)
class Broken:
    """One thing that is not as it must be. ``id`` names the row (a run, step row, lease, topic), '' for the system."""

    invariant: str
    id: str
    detail: str
    repair: Repair | None = None

    def as_json(self) -> dict[str, str]:
        """``{invariant, id, detail}``."""
        return {"invariant": self.invariant, "id": self.id, "detail": self.detail}


@dataclass(frozen=True)
class Scope:
    """Which runs are looked at: one; or all that are live and those that ended within ``since`` seconds.

    ``most`` bounds either part. ``seconds`` is what each invariant may take in the database, ``limit`` how many items
    it reports before it only says that there are more.
    """

    run: UUID | None = None
    since: float = WEEK
    most: int = 200_000
    seconds: float = 60.0
    limit: int = LIMIT

    @classmethod
    def everything(cls) -> Scope:
        """All runs in the record."""
        return cls(since=200 * 365 * 86_400.0, most=10**9, seconds=600.0)

    @classmethod
    def quick(cls) -> Scope:
        """What a dispatcher looks at while it works."""
        return cls(since=900.0, most=2_000, seconds=5.0)

    @property
    def sql(self) -> str:
        """A CTE ``scope`` of run rows; its parameters are in :attr:`params`."""
        return _ONE if self.run else _MANY

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of :attr:`sql`, and the words of states that the invariants use."""
        return {
            "run": self.run,
            "since": self.since,
            "most": self.most,
            "live": sorted(RUN_LIVE),
            "terminal": sorted(RUN_TERMINAL),
            "open": sorted(STEP_LIVE),
            "closed": sorted(STEP_TERMINAL),
            "late": late(),
            "detect": detect(),
            "limit": self.limit + 1,
        }


_COLUMNS = """id, definition_id, workflow, state, cause, stop, compensation, pending, node_states, retries, started_at,
    available_at, hold_until, deadline_at, deadline_missed_at, on_deadline, stopped_at, finished_at, exclusive_key"""
_ONE = f"scope AS (SELECT {_COLUMNS} FROM workflow_runs WHERE id = %(run)s)"
# Indexes: workflow_runs_state, workflow_runs_finished (whose condition is repeated word by word so that it is used).
_MANY = f"""
scope AS MATERIALIZED (
    (SELECT {_COLUMNS} FROM workflow_runs WHERE state = ANY(%(live)s) ORDER BY id DESC LIMIT %(most)s)
    UNION ALL
    (SELECT {_COLUMNS} FROM workflow_runs
     WHERE state IN ('cancelled', 'done', 'failed') AND finished_at > now() - %(since)s * interval '1 second'
     ORDER BY finished_at DESC LIMIT %(most)s)
    UNION ALL
    (SELECT {_COLUMNS} FROM workflow_runs
     WHERE state IN ('cancelled', 'done', 'failed') AND finished_at IS NULL LIMIT %(most)s)
)"""


@dataclass(frozen=True)
class Invariant:
    """One of them. ``quick``: cheap enough for a dispatcher; ``of_runs``: it can be asked of a single run."""

    name: str
    check: Callable[[Connection, Scope], list[Broken]]
    quick: bool = True
    of_runs: bool = True


def find(conn: Connection, scope: Scope, query: str, **more: Any) -> list[Any]:
    """Rows of a query that may use the CTE ``scope`` and the parameters of a scope."""
    return rows(conn, query.replace("{scope}", scope.sql), {**scope.params, **more})


def late() -> float:
    """Seconds after which something due has been missed by the sweeper, and is not merely being done."""
    return max(2 * settings.ORCHESTRATOR.sweep_seconds, 2.0) + 1.0


def detect() -> float:
    """Seconds for which a fault may go unnoticed: a lease and two sweeps."""
    conf = settings.ORCHESTRATOR
    return float(conf.lease_seconds + max(2 * conf.sweep_seconds, 2.0))


def ago(seconds: float | None) -> str:
    """A length of time in a few characters, for details."""
    if seconds is None:
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def bounded(name: str, found: list[Broken], limit: int) -> list[Broken]:
    """At most ``limit`` items, and one that says that there are more."""
    if len(found) <= limit:
        return found
    return [*found[:limit], Broken(name, "", f"and more than these {limit}; mend them and look again")]
