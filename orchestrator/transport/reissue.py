"""Tickets that Redis has lost: after FLUSHALL, a restart, an eviction, or with a worker that popped and died.

What is queued in the record and has no ticket gets a new one; nothing is spent by it.
"""

from __future__ import annotations

import logging
from typing import Any, cast
from uuid import UUID

from redis import Redis
from rq import Queue

from orchestrator.engine.db import Connection, in_transaction, put, rows
from orchestrator.engine.pauses import FRESH
from orchestrator.transport.tickets import GATED, TicketRef, parse, publish

log = logging.getLogger("switchyard.dispatcher")
SENTINEL = "switchyard:sentinel"
#: A step that has been queued for this long, in two looks one after the other, without a ticket has lost it. (Between
#: two looks a ticket may be in the hands of a worker, for a slice of time.)
AGE = 2.0
EVERY = 2.0
_PAGE = 2000
#: A queue longer than this is not read whole: its oldest tickets are looked for when it is shorter.
_LONG = 50_000

_QUEUED = """
WITH RECURSIVE queues AS (
    (SELECT queue FROM workflow_steps WHERE state = 'queued' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT s.queue FROM workflow_steps s
            WHERE s.state = 'queued' AND s.queue > q.queue ORDER BY s.queue LIMIT 1)
    FROM queues q WHERE q.queue IS NOT NULL
), held AS (
    SELECT coalesce(array_agg(name) FILTER (WHERE kind = 'queue'), '{}') AS queues,
           coalesce(array_agg(name) FILTER (WHERE kind = 'workflow'), '{}') AS workflows
    FROM workflow_pauses WHERE until > clock_timestamp()
)
SELECT o.run_id, r.definition_id, r.workflow, o.step, o.queue, count(*) AS n, bool_or(o.gated) AS gated
FROM held h
JOIN queues q ON q.queue <> ALL (h.queues)
CROSS JOIN LATERAL (
    SELECT s.run_id, s.step, s.queue, s.ready_at, s.topic IS NOT NULL OR s.lock_name IS NOT NULL AS gated
    FROM workflow_steps s
    WHERE s.state = 'queued' AND s.queue = q.queue AND s.ready_at < now() - %(age)s * interval '1 second'
      AND (h.workflows = '{}' OR s.kind = 'compensation' OR NOT EXISTS (
           SELECT 1 FROM workflow_runs p WHERE p.id = s.run_id AND p.workflow = ANY (h.workflows)))
    ORDER BY s.ready_at LIMIT %(limit)s
) o
JOIN workflow_runs r ON r.id = o.run_id
GROUP BY o.run_id, r.definition_id, r.workflow, o.step, o.queue
ORDER BY min(o.ready_at)
"""
#: Pauses that ended so long ago that no worker still heeds them.
_ENDED = """
SELECT id, kind, name FROM workflow_pauses
WHERE until <= clock_timestamp() - %s * interval '1 second' ORDER BY id FOR UPDATE SKIP LOCKED"""


class Reissuer:
    """Looks for lost tickets; kept by the dispatcher from look to look."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._suspects: set[TicketRef] = set()
        self._known = False

    def if_emptied(self, conn: Connection) -> int:
        """Redis no longer holds our sentinel: it was emptied or replaced, and every queued step gets a ticket."""
        known, self._known = self._known, True
        if self._client.exists(SENTINEL):
            return 0
        found = rows(conn, _QUEUED, {"age": 0, "limit": 1_000_000})
        count = publish(self._client, _refs(found), again=True)
        self._client.set(SENTINEL, "1")
        if count and known:
            log.warning("Redis was emptied: %s tickets issued again", count)
        elif count:  # the first look since this dispatcher started: a new Redis is no alarm
            log.info("Redis held no tickets when this dispatcher started: %s issued", count)
        return count

    def stale(self, conn: Connection) -> int:
        """Steps that have been queued for a while and have no ticket in Redis get one."""
        found = rows(conn, _QUEUED, {"age": AGE, "limit": _PAGE})
        missing = set(without_ticket(self._client, [_ref(row) for row in found]))
        lost = missing & self._suspects
        self._suspects = missing - lost
        if lost:
            publish(self._client, lost, again=True)
            log.warning("%s tickets were missing and are issued again", len(lost))
        return len(lost)

    def lift(self, conn: Connection) -> int:
        """Pauses have ended: what they held back and has no tickets gets them, and the pauses are forgotten."""

        def work() -> int:
            ended = rows(conn, _ENDED, [FRESH + 0.1])
            if not ended:
                return 0
            names = {(row.kind, row.name) for row in ended}
            found = [
                row
                for row in rows(conn, _QUEUED, {"age": 0, "limit": 1_000_000})
                if ("queue", row.queue) in names or ("workflow", row.workflow) in names
            ]
            missing = set(without_ticket(self._client, [_ref(row) for row in found], trust_long=False))
            publish(self._client, _refs([row for row in found if _ref(row) in missing]), again=True)
            put(conn, "DELETE FROM workflow_pauses WHERE id = ANY(%s)", [[row.id for row in ended]])
            log.info("%s pauses have ended: %s tickets issued", len(ended), len(missing))
            return len(ended)

        return in_transaction(conn, work)


def _ref(row: Any) -> TicketRef:
    return TicketRef(row.run_id, row.definition_id, row.step, row.queue, GATED * row.gated)


def _refs(found: list[Any]) -> list[TicketRef]:
    return [_ref(row)._replace(slot=slot + GATED * row.gated) for row in found for slot in range(min(row.n, 64))]


def without_ticket(client: Redis, refs: list[TicketRef], *, trust_long: bool = True) -> list[TicketRef]:
    """Those of which Redis holds no ticket at all, whatever its slot.

    A queue that is too long to be read is taken to hold them; or none of them, with ``trust_long`` False.
    """
    held: set[tuple[str, UUID, str]] = set()
    for queue in {ref.queue for ref in refs}:
        key = Queue.redis_queue_namespace_prefix + queue
        length = client.llen(key)
        if length > _LONG and not trust_long:
            continue
        if length > _LONG:
            log.info("queue %s holds %s tickets; lost ones are looked for when it is shorter", queue, length)
            held.update((queue, ref.run_id, ref.step) for ref in refs if ref.queue == queue)
            continue
        for raw in cast("list[bytes]", client.lrange(key, 0, -1)):
            ref = parse(raw.decode(), queue)
            if ref is not None:
                held.add((queue, ref.run_id, ref.step))
    return [ref for ref in refs if (ref.queue, ref.run_id, ref.step) not in held]
