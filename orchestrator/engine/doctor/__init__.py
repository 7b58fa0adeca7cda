"""The doctor: works out again from the rows what the record must agree on, says what does not, and can mend it.

``examine`` only reads. Every :class:`~orchestrator.engine.doctor.look.Broken` that can be mended carries its repair,
which goes through the engine under the run's lock and leaves an audit record. What concerns Redis is in
``orchestrator.transport.doctor``, which most callers want.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from psycopg import errors

from orchestrator.engine.db import Connection, put
from orchestrator.engine.doctor import clocks, counts, gates, letters, life, totals
from orchestrator.engine.doctor.look import Broken, Invariant, Repair, Scope, bounded

__all__ = ["INVARIANTS", "Broken", "Examination", "Invariant", "Repair", "Scope", "examine"]

log = logging.getLogger("switchyard.doctor")

INVARIANTS: tuple[Invariant, ...] = (
    Invariant("claims", clocks.claims),
    Invariant("leases", clocks.leases, of_runs=False),
    Invariant("ended", life.ended),
    Invariant("pending", counts.pending),
    Invariant("fan_outs", counts.fan_outs),
    Invariant("node_states", counts.node_states),
    Invariant("due", clocks.due),
    Invariant("dead_end", life.dead_end),
    Invariant("deadline", life.deadline),
    Invariant("dead_letters", letters.dead_letters),
    Invariant("partial_undo", letters.partial_undo),
    Invariant("history", life.history),
    Invariant("topics", gates.topics, of_runs=False),
    Invariant("locks", gates.locks, of_runs=False),
    Invariant("counters", totals.counters, quick=False, of_runs=False),
    Invariant("dispatcher", clocks.dispatcher, of_runs=False),
)


@dataclass
class Examination:
    """What was found. ``checked`` and ``unchecked`` are names of invariants; the latter took too long."""

    broken: list[Broken] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken


def examine(
    conn: Connection,
    scope: Scope | None = None,
    invariants: Iterable[Invariant] = INVARIANTS,
    *,
    quick: bool = False,
) -> Examination:
    """Looks at every invariant, each in a transaction of its own and for a limited time. Changes nothing."""
    scope = scope or Scope()
    found = Examination()
    for invariant in invariants:
        if (quick and not invariant.quick) or (scope.run and not invariant.of_runs):
            continue
        try:
            with conn.transaction():
                put(conn, "SELECT set_config('statement_timeout', %s, true)", [str(int(scope.seconds * 1000))])
                found.broken += bounded(invariant.name, invariant.check(conn, scope), scope.limit)
            found.checked.append(invariant.name)
        except errors.QueryCanceled:
            log.warning("invariant %s could not be looked at within %g s", invariant.name, scope.seconds)
            found.unchecked.append(invariant.name)
    return found
