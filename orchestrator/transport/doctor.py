"""The doctor with Redis in view: tickets that are late or lost, and whether Redis keeps them. Callers come in here."""

from __future__ import annotations

import time
from functools import partial

from redis import Redis
from redis.exceptions import RedisError

from orchestrator.core.actor import Actor
from orchestrator.engine import doctor
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.doctor import Broken, Examination, Invariant, Scope
from orchestrator.engine.doctor.look import ago, find
from orchestrator.engine.doctor.mend import note
from orchestrator.transport.broker import connection as redis_connection
from orchestrator.transport.health import eviction_warning, ping
from orchestrator.transport.reissue import AGE, EVERY, without_ticket
from orchestrator.transport.relay import relay
from orchestrator.transport.tickets import GATED, TicketRef, publish

#: Between the two looks at a ticket that is missing: a worker may hold it for a slice of time.
_PAUSE = 1.5
#: Within this the dispatcher has issued a lost ticket again, however short the lease and the sweep are set.
_REISSUED = AGE + 3 * EVERY


def examine(conn: Connection, scope: Scope | None = None, *, quick: bool = False) -> Examination:
    """Every invariant, of the record and of Redis; ``quick``: those that a dispatcher can afford. Changes nothing."""
    scope = scope or Scope()
    problem = ping()
    client = redis_connection()
    known = [*doctor.INVARIANTS, Invariant("outbox", partial(outbox, client=client), of_runs=False)]
    if problem is None:
        known.append(Invariant("tickets", partial(tickets, client=client), quick=False))
    found = doctor.examine(conn, scope, known, quick=quick)
    if problem is not None and not scope.run:
        found.broken.append(Broken("redis", "", f"Redis cannot be reached: {problem}; no new work is handed out"))
        found.unchecked += [] if quick else ["tickets"]
    if not scope.run:
        found.checked.append("redis")
    warning = eviction_warning() if problem is None else None
    found.warnings += [warning] if warning else []
    return found


_OUTBOX = """
SELECT o.id, o.step, o.queue, o.run_id, extract(epoch FROM now() - o.created_at)::float8 AS since
FROM workflow_outbox o WHERE o.created_at < now() - %(detect)s * interval '1 second'
ORDER BY o.id LIMIT %(limit)s
"""


def outbox(conn: Connection, scope: Scope, client: Redis) -> list[Broken]:
    """No ticket waits in the outbox for longer than a fault may go unnoticed."""
    mend = partial(_relay, client=client)
    return [
        Broken(
            "outbox",
            str(row.id),
            f"ticket for {row.step} of run {row.run_id} on {row.queue} not handed to Redis for {ago(row.since)}",
            mend,
        )
        for row in find(conn, scope, _OUTBOX)
    ]


def _relay(conn: Connection, actor: Actor, client: Redis) -> str | None:
    count = 0
    try:
        while taken := relay(conn, client):
            count += taken
    except RedisError:
        return None  # it is reported as such
    if not count:
        return None
    note(conn, actor, "outbox", {"rows": count}, {"rows": 0, "published": count})
    return f"{count} rows of the outbox published"


# A stopped run's steps are not handed out; its compensations are. What is paused, or was a moment ago, has no tickets.
_QUEUED = """
SELECT s.run_id, r.definition_id, s.step, s.queue, bool_or(s.topic IS NOT NULL OR s.lock_name IS NOT NULL) AS gated,
       extract(epoch FROM now() - min(s.ready_at))::float8 AS since
FROM workflow_steps s JOIN workflow_runs r ON r.id = s.run_id
WHERE s.state = 'queued' AND s.ready_at < now() - %(detect)s * interval '1 second'
  AND (r.stop IS NULL OR s.kind = 'compensation')
  AND (%(run)s::uuid IS NULL OR s.run_id = %(run)s)
  AND NOT EXISTS (SELECT 1 FROM workflow_outbox o WHERE o.run_id = s.run_id AND o.step = s.step)
  AND NOT EXISTS (SELECT 1 FROM workflow_pauses p
                  WHERE p.until > now() - %(late)s * interval '1 second'
                    AND ((p.kind = 'queue' AND p.name = s.queue)
                         OR (p.kind = 'workflow' AND p.name = r.workflow AND s.kind = 'step')))
GROUP BY s.run_id, r.definition_id, s.step, s.queue
ORDER BY min(s.ready_at) LIMIT 5000
"""


def tickets(conn: Connection, scope: Scope, client: Redis) -> list[Broken]:
    """A step that has been queued for a while has a ticket in Redis, now or a moment later."""
    missing = _missing(conn, scope, client)
    if missing:
        time.sleep(_PAUSE)
        missing = {ref: since for ref, since in _missing(conn, scope, client).items() if ref in missing}
    return [
        Broken(
            "tickets",
            str(ref.run_id),
            f"{ref.step} is queued on {ref.queue} for {ago(since)} and has no ticket in Redis",
            partial(_issue, ref=ref, client=client),
        )
        for ref, since in missing.items()
    ]


def _missing(conn: Connection, scope: Scope, client: Redis) -> dict[TicketRef, float]:
    age = max(scope.params["detect"], _REISSUED)
    found = {
        TicketRef(r.run_id, r.definition_id, r.step, r.queue, GATED * r.gated): r.since
        for r in find(conn, scope, _QUEUED, detect=age)
    }
    return {ref: found[ref] for ref in without_ticket(client, list(found))}


_STILL_QUEUED = "SELECT 1 AS one FROM workflow_steps WHERE run_id = %s AND step = %s AND state = 'queued' LIMIT 1"


def _issue(conn: Connection, actor: Actor, ref: TicketRef, client: Redis) -> str | None:
    """A ticket too many changes nothing, so Redis is not read again."""
    if not rows(conn, _STILL_QUEUED, [ref.run_id, ref.step]):
        return None
    publish(client, [ref], again=True)
    note(conn, actor, "", {"step": ref.step, "ticket": None}, {"step": ref.step, "ticket": ref.id}, ref.run_id)
    return f"ticket issued on {ref.queue}"
