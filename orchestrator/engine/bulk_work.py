"""Doing what a bulk operation holds, a little at a time. Called by the dispatcher, any number of them.

One transaction for each action: the operation is locked (others skip it), the action goes through ``operate``, the
item's state and the operation's counts change with it. Wherever a process is killed, an item is either not done, or
done and recorded. What is due is read from the rows alone, so that any process goes on where another one ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.utils import InterfaceError, OperationalError

from orchestrator.core.actor import Actor
from orchestrator.core.bulk import BulkState, BulkVerb, ItemState, Outcome
from orchestrator.core.errors import Conflict, NotFound, SwitchyardError
from orchestrator.core.text import clean, describe_exception
from orchestrator.engine import operate
from orchestrator.engine.bulk_watch import note_failure, watch
from orchestrator.engine.db import RETRIED, Connection, caller_transaction, put, rows

log = logging.getLogger("switchyard.bulk")
#: Seconds that the others wait for the run of the first one.
FIRST_WAIT = 10.0
#: Seconds between two looks at the first one's run.
_LOOK = 0.25
_DETAIL = 2000

_TAKE = """
    SELECT *, first_until > clock_timestamp() AND EXISTS (
               SELECT 1 FROM workflow_bulk_items i WHERE i.operation_id = o.id AND i.outcome = 'awaited') AS waits,
           watch_at <= clock_timestamp() AS looks
    FROM workflow_bulk_operations o
    WHERE state = 'running' AND due_at <= clock_timestamp()
    ORDER BY due_at LIMIT 1 FOR NO KEY UPDATE OF o SKIP LOCKED"""
_NEXT = """
    SELECT id, target, run_id FROM workflow_bulk_items
    WHERE operation_id = %s AND state = 'pending' ORDER BY position LIMIT 1"""
_OF_RUN = """
    SELECT id, target FROM workflow_bulk_items
    WHERE operation_id = %s AND run_id = %s AND state = 'pending' ORDER BY position"""


def advance(conn: Connection | None = None, limit: int = 100, seconds: float = 0.2) -> int:
    """Does what is due now, at most ``limit`` items or ``seconds``; returns how many actions were taken.

    ``conn``: the dispatcher's own, asked first, so that Django's connection is only held while there is work.

    Raises:
        psycopg.OperationalError, psycopg.InterfaceError: the database went away.
    """
    if conn is not None and not rows(conn, "SELECT 1 FROM workflow_bulk_operations WHERE state = 'running' LIMIT 1"):
        if not connection.in_atomic_block:
            connection.close()
        return 0
    end, acted = time.monotonic() + seconds, 0
    try:
        for _ in range(limit):
            turn = _turn()
            if turn is None or time.monotonic() > end:
                return acted + (turn or 0)
            acted += turn
    except RETRIED as race:
        log.info("a bulk operation met another transaction and tries again: %s", race)
    except (OperationalError, InterfaceError) as gone:
        connection.close()
        raise psycopg.OperationalError(str(gone)) from gone
    except (psycopg.OperationalError, psycopg.InterfaceError):
        connection.close()
        raise
    return acted


def _turn() -> int | None:
    """Takes one operation a step further; None when none is due."""
    with caller_transaction() as conn:
        found = rows(conn, _TAKE)
        if not found:
            return None
        operation = found[0]
        if operation.looks and watch(conn, operation):
            return 0
        if operation.waits:
            _put_off(conn, operation, _LOOK)
            return 0
        if operation.first_until is not None:
            put(conn, "UPDATE workflow_bulk_operations SET first_until = NULL WHERE id = %s", [operation.id])
        item = next(iter(rows(conn, _NEXT, [operation.id])), None)
        if item is None:
            query = "UPDATE workflow_bulk_operations SET state = %s, finished_at = clock_timestamp() WHERE id = %s"
            put(conn, query, [BulkState.DONE, operation.id])
            return 0
        return _do(conn, operation, item)


def _put_off(conn: Connection, operation: Any, seconds: float) -> None:
    query = """
        UPDATE workflow_bulk_operations SET due_at = clock_timestamp() + %s * interval '1 second' WHERE id = %s"""
    put(conn, query, [seconds, operation.id])


def _do(conn: Connection, operation: Any, item: Any) -> int:
    """The action on one item (on all of the same run, where they have to go together) and its record."""
    together = [item]
    if operation.verb == BulkVerb.REPLAY and item.run_id is not None:
        together = rows(conn, _OF_RUN, [operation.id, item.run_id])
    refused: dict[int, str] = {}
    state, detail = ItemState.DONE, ""
    try:
        with transaction.atomic():
            refused = _ACT[BulkVerb(operation.verb)](operation, item, together)
    except (Conflict, NotFound) as error:
        state, detail = ItemState.SKIPPED, error.message
    except SwitchyardError as error:
        state, detail = ItemState.FAILED, error.message
    except Exception as error:
        if isinstance(error, RETRIED) or conn.closed or conn.broken:
            raise
        log.exception("bulk operation %s: %s could not be done to %s", operation.id, operation.verb, item.target)
        state, detail = ItemState.FAILED, f"{type(error).__name__}: {describe_exception(error, 500)}"
    done = [one for one in together if state is ItemState.DONE and one.id not in refused]
    skipped = [(one, refused.get(one.id, detail)) for one in together if one not in done]
    _record(conn, operation, done, skipped, ItemState.FAILED if state is ItemState.FAILED else ItemState.SKIPPED)
    if state is ItemState.FAILED:
        note_failure(conn, operation, detail)
    return 1 if done else 0


def _replay(operation: Any, item: Any, together: list[Any]) -> dict[int, str]:
    """Replays all of the set that are of one run; those refused by item, with why."""
    if item.run_id is None:
        raise NotFound(f"there is no dead letter {item.target}")
    ids = {int(one.target): one.id for one in together}
    refused = operate.replay_dead_letters(item.run_id, list(ids), _actor(operation), operation.reason)
    return {ids[letter]: why for letter, why in refused.items()}


def _discard(operation: Any, item: Any, together: list[Any]) -> dict[int, str]:
    if item.run_id is None:
        raise NotFound(f"there is no dead letter {item.target}")
    operate.discard_dead_letter(int(item.target), _actor(operation), operation.reason)
    return {}


def _retry(operation: Any, item: Any, together: list[Any]) -> dict[int, str]:
    operate.retry_run(item.target, _actor(operation), operation.reason)
    return {}


def _cancel(operation: Any, item: Any, together: list[Any]) -> dict[int, str]:
    operate.cancel_run(item.target, _actor(operation), operation.reason)
    return {}


_ACT: dict[BulkVerb, Callable[[Any, Any, list[Any]], dict[int, str]]] = {
    BulkVerb.REPLAY: _replay,
    BulkVerb.DISCARD: _discard,
    BulkVerb.RETRY: _retry,
    BulkVerb.CANCEL: _cancel,
}


def _actor(operation: Any) -> Actor:
    return Actor(operation.actor, operation.role)


def _record(conn: Connection, operation: Any, done: list[Any], others: list[tuple[Any, str]], state: ItemState) -> None:
    """The items' states, the counts, and when the next one is due. Only what was done costs time of the pace."""
    watched = done[:1] if operation.verb != BulkVerb.DISCARD else []
    changes = [(one.id, ItemState.DONE, Outcome.AWAITED if one in watched else Outcome.NONE, "") for one in done]
    changes += [(one.id, state, Outcome.NONE, clean(why, _DETAIL)) for one, why in others]
    ids, states, outcomes, details = map(list, zip(*changes, strict=True))
    # The time of the transaction's start: what fails again later has a later one, however fast it is.
    query = """
        UPDATE workflow_bulk_items i SET state = c.state, outcome = c.outcome, detail = c.detail, at = now()
        FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) AS c(id, state, outcome, detail)
        WHERE i.id = c.id"""
    put(conn, query, [ids, states, outcomes, details])
    first = bool(watched) and not operation.done and operation.total > len(changes)
    failed = state is ItemState.FAILED
    query = """
        UPDATE workflow_bulk_operations
        SET done = done + %(done)s, skipped = skipped + %(skipped)s, failed = failed + %(failed)s,
            due_at = CASE WHEN %(done)s = 0 THEN clock_timestamp()
                          ELSE greatest(due_at, clock_timestamp() - interval '1 second')
                               + %(gap)s * interval '1 second' END,
            first_until = CASE WHEN %(first)s THEN clock_timestamp() + %(wait)s * interval '1 second' END
        WHERE id = %(id)s"""
    params = {
        "id": operation.id, "done": len(done), "skipped": 0 if failed else len(others),
        "failed": len(others) if failed else 0, "first": first, "wait": FIRST_WAIT,
        "gap": 1 / settings.ORCHESTRATOR.bulk_per_second,
    }  # fmt: skip
    put(conn, query, params)
