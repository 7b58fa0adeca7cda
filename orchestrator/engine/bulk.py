"""One action on many: replay or discard dead letters, retry or cancel runs.

The set is frozen in rows when the operation is made; the dispatcher then does one after the other (``bulk_work``), at a
pace, the first alone. What is asked for stands in ``bulk_choice``, what it would do in ``bulk_preview``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db import connection, transaction

from orchestrator.core.actor import Actor, require
from orchestrator.core.bulk import BulkState
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.text import clean
from orchestrator.engine import audit, bulk_preview
from orchestrator.engine.bulk_choice import COLUMNS, Choice, Filters, choose, rows_of
from orchestrator.engine.bulk_preview import BulkPreview
from orchestrator.engine.bulk_work import advance
from orchestrator.engine.db import caller_transaction, notify, put, rows
from orchestrator.engine.find import patiently
from orchestrator.models import BulkOperation

__all__ = ["BulkPreview", "Filters", "advance", "get", "preview", "resume", "start", "stop"]

#: Seconds that freezing the set may take.
PATIENCE = 30.0
ID = uuid.UUID | str


def preview(verb: str, filters: Filters | None = None, ids: Iterable[object] | None = None) -> BulkPreview:
    """What it would do, counted. Changes nothing.

    Raises:
        Invalid: neither a filter nor ids, both, or an empty one; a set that is too large.
        TooBroad: counting takes too long.
    """
    return bulk_preview.count(choose(verb, filters, ids))


def start(
    verb: str, actor: Actor, reason: str, *, filters: Filters | None = None, ids: Iterable[object] | None = None
) -> BulkOperation:
    """Freezes the set and leaves it to the dispatcher. An empty set is done at once.

    Raises:
        NotAllowed: role below operator.
        Invalid: no reason, or as :func:`preview`.
        TooBroad: looking takes too long.
    """
    require(actor, "operator", reason)
    choice = choose(verb, filters, ids)
    with transaction.atomic():
        made = BulkOperation.objects.create(
            verb=choice.verb,
            filter=choice.described(),
            reason=clean(reason.strip()),
            actor=actor.name,
            role=actor.role,
        )
        total = patiently(lambda: _freeze(made.id, choice), PATIENCE)
        bulk_preview.check_size(total)
        with caller_transaction() as conn:
            ended = BulkState.RUNNING if total else BulkState.DONE
            put(
                conn,
                """UPDATE workflow_bulk_operations SET total = %s, state = %s,
                   finished_at = CASE WHEN %s = 'done' THEN now() END WHERE id = %s""",
                [total, ended, ended, made.id],
            )
            after = {"verb": choice.verb, "total": total, "filter": made.filter}
            audit.note(_subject(made.id), f"bulk_{choice.verb}", actor, made.reason, after=after)
            notify(conn)
    return get(made.id)


def _freeze(operation: uuid.UUID, choice: Choice) -> int:
    chosen, params = rows_of(choice)
    query = f"""
        INSERT INTO workflow_bulk_items (operation_id, position, target, run_id)
        SELECT %s, position, target, run_id FROM ({chosen}) AS chosen ({COLUMNS})"""
    with connection.cursor() as cursor:
        cursor.execute(query, [operation, *params])
        return int(cursor.rowcount)


def stop(operation: ID, actor: Actor, reason: str = "") -> None:
    """Nothing more is done until it is resumed; what was done stays.

    Raises:
        NotFound, NotAllowed: there is none of that id, role below operator.
        Conflict: it has ended or is stopped.
    """
    _move(operation, actor, reason, "stop", (BulkState.RUNNING, BulkState.PAUSED), BulkState.STOPPED)


def resume(operation: ID, actor: Actor, reason: str = "") -> None:
    """Goes on with what is left of the set; failures before do not count towards the next pause.

    Raises:
        NotFound, NotAllowed: there is none of that id, role below operator.
        Conflict: it has ended or is under way.
    """
    _move(operation, actor, reason, "resume", (BulkState.PAUSED, BulkState.STOPPED), BulkState.RUNNING)


def _move(
    operation: ID, actor: Actor, reason: str, action: str, allowed: tuple[BulkState, ...], then: BulkState
) -> None:
    require(actor, "operator")
    query = "SELECT id, state FROM workflow_bulk_operations WHERE id = %s FOR NO KEY UPDATE"
    with caller_transaction() as conn:
        found = rows(conn, query, [_id(operation)])
        if not found:
            raise NotFound(f"there is no bulk operation {operation}")
        row = found[0]
        if row.state not in allowed:
            raise Conflict(
                f"bulk operation {row.id} is {row.state}; only one that is {' or '.join(allowed)} can {action}"
            )
        put(
            conn,
            """UPDATE workflow_bulk_operations SET state = %s, note = '', streak = 0, streak_kind = '',
               first_until = NULL, due_at = clock_timestamp() WHERE id = %s""",
            [then, row.id],
        )
        states = {"before": {"state": row.state}, "after": {"state": then}}
        audit.note(_subject(row.id), f"bulk_{action}", actor, reason.strip(), **states)
        notify(conn)


def get(operation: ID) -> BulkOperation:
    """One operation as it is now.

    Raises:
        NotFound: there is none of that id.
    """
    found = BulkOperation.objects.filter(pk=_id(operation)).first()
    if found is None:
        raise NotFound(f"there is no bulk operation {operation}")
    return found


def _id(given: ID) -> uuid.UUID:
    try:
        return given if isinstance(given, uuid.UUID) else uuid.UUID(given)
    except ValueError:
        raise NotFound(f"there is no bulk operation {str(given)[:80]!r}; its id is a UUID") from None


def _subject(operation: uuid.UUID) -> str:
    return f"bulk operation {operation}"
