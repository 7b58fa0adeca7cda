"""A worker and a dispatcher inside the test: the same claim, run and settle, without processes, waits or Redis.

Tickets are taken from the outbox; the passing of time is done by moving due times into the past. For what the engine
makes of outcomes; what processes do to one another is for the tests of faults.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.engine import recover, waits
from orchestrator.engine.db import Connection, connect, rows, sql
from orchestrator.engine.transitions import Holder
from orchestrator.transport.batch import Batch
from orchestrator.transport.board import Board
from orchestrator.transport.drain import Drainer
from orchestrator.transport.tickets import GATED, TicketRef
from orchestrator.transport.worker import Connections

QUEUES = ("default", "left", "right")


def make_lease(conn: Connection, name: str = "inline", queues: Sequence[str] = QUEUES) -> Holder:
    """A lease that does not run out during a test."""
    query = """
        INSERT INTO workflow_leases (token, name, host, pid, queues, workflows, expires_at)
        VALUES (%s, %s, 'here', 1, %s, '', now() + interval '1 hour') RETURNING id"""
    return Holder(rows(conn, query, [uuid.uuid4(), name, list(queues)])[0].id, name)


class Inline:
    """One worker in this process."""

    def __init__(self, queues: Sequence[str] = QUEUES) -> None:
        self.conn = connect("inline")
        self._connections = Connections("inline worker")
        self.holder = make_lease(self.conn, queues=queues)
        self.board = Board(400)
        self.stopping = False
        self._batch = Batch(self._connections.main, self._connections.watch, self.board)
        self.drainer = Drainer(self._connections.main, self.holder, queues, self._batch, lambda: self.stopping)
        self._queues = queues
        self._held: list[TicketRef] = []

    def tickets(self) -> list[TicketRef]:
        """What the outbox holds, taken as the relay takes it."""
        with self.conn.transaction():
            taken = sorted(rows(self.conn, sql("take_outbox"), {"limit": 10_000}), key=lambda r: r.id)
        refs = [
            TicketRef(r.run_id, r.definition_id, r.step, r.queue, s + GATED * r.gated)
            for r in taken
            for s in range(r.tickets)
        ]
        self._held += [ref for ref in refs if ref.queue not in self._queues]
        return [ref for ref in refs if ref.queue in self._queues]

    def step(self) -> bool:
        """Takes one ticket of each on hand to its end; False when there was none."""
        recover.wake_due(self.conn)
        waits.fire_due(self.conn)
        waits.expire_joins(self.conn)
        recover.end_holds(self.conn)
        recover.start_delayed(self.conn)
        waiting = self.tickets()
        if not waiting:
            return False
        while waiting:
            waiting += self.drainer.drain([waiting.pop(0)])
        return True

    def work(self, until: Callable[[], Any] | None = None, limit: int = 500) -> None:
        """Until nothing is left to do now."""
        for _ in range(limit):
            if not self.step() or (until and until()):
                return
        raise AssertionError(f"still busy after {limit} rounds")

    def elapse(self, seconds: float) -> None:
        """Time passes: everything with a due time is due so much earlier. Then what is due is done."""
        shift = f"interval '{seconds} seconds'"
        self.conn.execute(f"UPDATE workflow_steps SET ready_at = ready_at - {shift} WHERE state = 'waiting'")
        self.conn.execute(
            f"""UPDATE workflow_runs SET deadline_at = deadline_at - {shift}, available_at = available_at - {shift}
                WHERE finished_at IS NULL"""
        )
        recover.enforce_deadlines(self.conn)
        self.work()

    def lose(self) -> None:
        """The worker process dies with what it has in hand; the sweep finds out."""
        self.conn.execute("UPDATE workflow_leases SET ended_at = now() WHERE id = %s", [self.holder.lease_id])
        recover.reap_lost(self.conn)
        self.holder = make_lease(self.conn, queues=self._queues)
        self.drainer._holder = self.holder

    def close(self) -> None:
        """Gives its connections back."""
        for conn in (self.conn, self._connections.main(), self._connections.watch()):
            conn.close()
