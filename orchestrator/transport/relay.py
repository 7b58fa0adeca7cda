"""From the outbox to Redis: each row published once; after a crash again, under the same ids, which changes nothing."""

from __future__ import annotations

from redis import Redis

from orchestrator.engine.db import Connection, in_transaction, put, rows, sql
from orchestrator.transport.tickets import GATED, TicketRef, publish

_BATCH = 500


def relay(conn: Connection, client: Redis) -> int:
    """Publishes up to a batch of tickets; returns how many outbox rows it took."""

    def work() -> int:
        put(conn, "SELECT set_config('synchronous_commit', 'off', true)")
        taken = rows(conn, sql("take_outbox"), {"limit": _BATCH})
        refs = [
            TicketRef(row.run_id, row.definition_id, row.step, row.queue, slot + GATED * row.gated)
            for row in sorted(taken, key=lambda r: r.id)
            for slot in range(row.tickets)
        ]
        publish(client, refs)
        return len(taken)

    with conn.pipeline():
        return in_transaction(conn, work)
