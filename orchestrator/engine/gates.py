"""Topics and locks: what a row needs beside a worker before it may run.

Both are derived from live claims. Who claims or closes a gated row locks the names first and counts in a later
statement, so a limit holds over all workers, nothing leaks with a killed one, and a waiter is woken by whoever makes
room. What waits is parked: it holds no worker, spends no attempt, and is queued again when its turn comes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings

from orchestrator.core.states import Cause, StepState
from orchestrator.engine import history, transitions
from orchestrator.engine.claims import End, Holder, Ticket
from orchestrator.engine.closing import close_node
from orchestrator.engine.db import Connection, in_transaction, put, relax_commit, rows, sql
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import Plan, load_plan
from orchestrator.engine.unwind import resolve

_LIMIT = 1000


def claim_gated(conn: Connection, tickets: Sequence[Ticket], holder: Holder) -> list[Any]:
    """Claims queued rows that need topics or locks, as far as there is room; rows of sql/claim_gated.

    What finds no room is parked, or ended as rejected where the policy says so.
    """
    runs, steps, limits = map(list, zip(*tickets, strict=True))
    found = rows(conn, sql("select_gated"), {"runs": runs, "steps": steps, "limits": limits})
    if not found:
        return []
    policies = [policy_of(load_plan(conn, r.definition_id), r.kind, r.step) for r in found]

    def work() -> list[Any]:
        relax_commit(conn)
        _lock(conn, _limits(conn, found), [r.lock_name for r in found if r.lock_name])
        return transitions.claim_gated(conn, [r.id for r in found], policies, holder)

    answers = in_transaction(conn, work)
    refused = [r for r in answers if r.refused]
    if refused:
        in_transaction(conn, lambda: _reject(conn, refused))
    return [r for r in answers if not r.refused]


def policy_of(plan: Plan, kind: str, step: str) -> str:
    """The step's own policy, else the fleet's, else what a lock implies: wait for it. A submission's wins in SQL."""
    own = getattr(plan.work_spec(kind, step), "on_lock_conflict", None)
    return own or settings.ORCHESTRATOR.on_lock_conflict or "requeue"


def _limits(conn: Connection, found: Iterable[Any]) -> dict[str, int | None]:
    """Topics of these rows with the limits that the settings give, else their definitions."""
    configured = settings.ORCHESTRATOR.topic_limits
    limits: dict[str, int | None] = {}
    for row in found:
        if row.topic in configured:
            limits[row.topic] = configured[row.topic]
        elif row.topic:
            spec = load_plan(conn, row.definition_id).by_id[row.step].spec
            limits[row.topic] = spec.topic.limit if spec.topic else None
    return limits


def _lock(conn: Connection, topics: dict[str, int | None], locks: Sequence[str]) -> None:
    put(conn, sql("lock_gates"), {"topics": list(topics), "limits": list(topics.values()), "locks": list(locks)})


def wake(conn: Connection, closed: Sequence[Any]) -> int:
    """Rows (with topic and lock_name) have ended or gone back to waiting: who waits for what they held is queued.

    Part of the transaction that closed them. Returns how many were woken.
    """
    topics = sorted({row.topic for row in closed if row.topic})
    locks = sorted({row.lock_name for row in closed if row.lock_name})
    return promote(conn, topics, locks) if topics or locks else 0


def promote(conn: Connection, topics: Sequence[str], locks: Sequence[str]) -> int:
    """Queues what waits for these topics and locks, as far as there is room, with tickets; how many."""
    put(conn, sql("lock_existing_gates"), {"topics": list(topics), "locks": list(locks)})
    woken = transitions.promote_waiting(conn, list(topics), list(locks))
    history.insert_outbox(conn, [(r.run_id, r.definition_id, r.step, r.queue, 1, True) for r in woken])
    return len(woken)


def promote_all(conn: Connection) -> int:
    """For the dispatcher: whatever waits although there is room (a limit was raised, a wake-up was missed)."""
    waiting = rows(conn, sql("select_waiting_gates"), {"limit": _LIMIT})
    if not waiting:
        return 0
    topics = sorted({r.name for r in waiting if r.kind == "topic"})
    locks = sorted({r.name for r in waiting if r.kind == "lock"})
    _renew_limits(conn, topics)
    return in_transaction(conn, lambda: promote(conn, topics, locks))


_RENEW = """
UPDATE workflow_topics t SET "limit" = c.most
FROM (SELECT n.name, CASE WHEN n.name = ANY(%(configured)s::text[]) THEN n.most
                          WHEN t."limit" = 0 THEN 1 ELSE t."limit" END AS most
      FROM unnest(%(names)s::text[], %(limits)s::int[]) AS n(name, most) JOIN workflow_topics t ON t.name = n.name) c
WHERE t.name = c.name AND t.set_by = '' AND t."limit" IS DISTINCT FROM c.most"""


def _renew_limits(conn: Connection, topics: list[str]) -> None:
    """Limits of the settings reach topics at which everything waits, where no claim could bring them.

    A limit of 0 that nobody set at run time may be out of date too: one row is let out, and its claim says what holds.
    """
    configured = {name: most for name, most in settings.ORCHESTRATOR.topic_limits.items() if name in topics}
    limits = [configured.get(name) for name in topics]
    if topics:
        put(conn, _RENEW, {"names": topics, "limits": limits, "configured": list(configured)})


def _reject(conn: Connection, refused: Sequence[Any]) -> None:
    """Ends rows that lost a lock and do not wait: recorded rejected, and parked as dead letters where asked."""
    locked = {r.id: r for r in transitions.lock_runs(conn, [row.run_id for row in refused])}
    edits = {run_id: RunEdit.of(r, load_plan(conn, r.definition_id)) for run_id, r in locked.items()}
    error = json.dumps(
        {"type": "LockHeld", "message": "another step holds the lock, and this one does not wait for it"}
    )
    ends = [End(row.id, StepState.REJECTED, Cause.LOCK, error) for row in refused]
    closed = transitions.end_unclaimed(conn, ends, [StepState.QUEUED])
    policies = {row.id: row.refused for row in refused}
    dead = []
    for row in closed:
        edit = edits[row.run_id]
        close_node(edit, row)
        if policies[row.id] == "dead_letter":
            dead.append((edit.row, row.id, row.step, row.shard, Cause.LOCK, error, row.attempt))
    if dead:
        history.insert_dead_letters(conn, dead)
    for edit in edits.values():
        resolve(conn, edit, reader(conn))
    transitions.write(conn, list(edits.values()), None, {})
