"""The set of a bulk operation: the ids that were named, or what a filter matches, as rows in order."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from django.core.exceptions import EmptyResultSet

from orchestrator.core.bulk import BulkVerb
from orchestrator.core.errors import Invalid
from orchestrator.core.text import clean
from orchestrator.engine import find, find_dead_letters
from orchestrator.engine.find import RunFilters
from orchestrator.engine.find_dead_letters import DeadLetterFilters

Filters = RunFilters | DeadLetterFilters
#: As many are taken at most.
MAX = 100_000
MAX_IDS = 10_000
_MAX_ID_LENGTH = 100


@dataclass(frozen=True)
class Choice:
    """Either ``filters`` or ``ids``; the other is None."""

    verb: BulkVerb
    filters: Filters | None
    ids: tuple[str, ...] | None

    def described(self) -> dict[str, Any] | None:
        """The filter as it is kept and shown: criteria by name, times absolute; None for named ids."""
        if self.filters is None:
            return None
        given = {f.name: getattr(self.filters, f.name) for f in fields(self.filters)}
        return {name: _plain(value) for name, value in given.items() if value not in (None, ())}


def choose(verb: str, filters: Filters | None = None, ids: Iterable[object] | None = None) -> Choice:
    """Checks what was asked for. Ids that stand several times count once.

    Raises:
        Invalid: neither a filter nor ids, both, an empty one, too many ids, an unknown verb.
    """
    if verb not in list(BulkVerb):
        raise Invalid(f"{verb[:40]!r} cannot be done to many at once; {', '.join(BulkVerb)} can", field="verb")
    what = BulkVerb(verb).objects()
    if filters is not None and ids is not None:
        raise Invalid("give a filter or ids, not both", field="ids")
    if ids is not None:
        named = tuple(dict.fromkeys(_id(BulkVerb(verb), one) for one in ids))
        if not named:
            raise Invalid(f"no {what} are named; nothing was done", field="ids")
        if len(named) > MAX_IDS:
            raise Invalid(f"{len(named):,} ids are over {MAX_IDS:,}; use a filter", field="ids")
        return Choice(BulkVerb(verb), None, named)
    if filters is None or all(getattr(filters, f.name) in (None, ()) for f in fields(filters)):
        raise Invalid(f"say which {what}: an empty filter would mean all of them", field="filter")
    if isinstance(filters, RunFilters) is not BulkVerb(verb).of_runs:
        raise Invalid(f"{verb} is done to {what}", field="filter")
    return Choice(BulkVerb(verb), filters, None)


def _id(verb: BulkVerb, given: object) -> str:
    """One id as text, the same however it was written; one that cannot be any is kept, and skipped later."""
    text = clean(str(given)).strip()
    if len(text) > _MAX_ID_LENGTH:
        raise Invalid(f"{text[:40]!r}… is not the id of a {verb.objects(1)}", field="ids")
    if verb.of_runs:
        return str(_uuid(text) or text)
    return str(_number(text) or text)


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [":".join(one) if isinstance(one, tuple) else str(one) for one in value]
    if isinstance(value, uuid.UUID | datetime):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    return value


#: Columns of :func:`rows_of`.
COLUMNS = "position, target, run_id, letter_id"


def rows_of(choice: Choice) -> tuple[str, list[Any]]:
    """A query of the set, one row each in the order in which they are done, with its parameters.

    Columns: ``position`` (from 1), ``target``, ``run_id`` and ``letter_id`` (null where there is none of that id).
    At most :data:`MAX` + 1 rows.
    """
    of_runs = choice.verb.of_runs
    if choice.ids is not None and of_runs:
        query = """
            SELECT u.position, u.target, r.id AS run_id, NULL::bigint AS letter_id
            FROM unnest(%s::text[], %s::uuid[]) WITH ORDINALITY AS u(target, id, position)
            LEFT JOIN workflow_runs r ON r.id = u.id"""
        return query, [list(choice.ids), [_uuid(text) for text in choice.ids]]
    if choice.ids is not None:
        query = """
            SELECT u.position, u.target, d.run_id, d.id AS letter_id
            FROM unnest(%s::text[], %s::bigint[]) WITH ORDINALITY AS u(target, id, position)
            LEFT JOIN workflow_dead_letters d ON d.id = u.id"""
        return query, [list(choice.ids), [_number(text) for text in choice.ids]]
    found, params = _matching(choice.filters)
    head = "SELECT row_number() OVER (ORDER BY c.id) AS position, c.id::text AS target"
    if of_runs:
        return f"{head}, c.id AS run_id, NULL::bigint AS letter_id FROM ({found}) AS c(id)", params
    return f"{head}, c.run_id, c.id AS letter_id FROM ({found}) AS c(id, run_id)", params


def _matching(filters: Filters | None) -> tuple[str, list[Any]]:
    """What matches, oldest first."""
    try:
        if isinstance(filters, RunFilters):
            found = find.matching(filters).order_by("id").values_list("id")[: MAX + 1].query.sql_with_params()
        else:
            assert filters is not None
            letters = find_dead_letters.matching(filters).select_related(None).order_by("id")
            found = letters.values_list("id", "run_id")[: MAX + 1].query.sql_with_params()
    except EmptyResultSet:
        nothing = "SELECT NULL::uuid" if isinstance(filters, RunFilters) else "SELECT NULL::bigint, NULL::uuid"
        return f"{nothing} WHERE false", []
    return found[0], list(found[1])
