"""How many runs each state would leave, beside the other filters in force; bounded, and nothing when it takes long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.core.cache import cache
from django.core.exceptions import EmptyResultSet
from django.db import connection

from dashboard.nav import BOUND
from dashboard.render import make_tag
from orchestrator.core.states import RUN_LIVE, RunState, Undo
from orchestrator.engine.find import RunFilters, TooBroad, matching, patiently

#: Seconds that counting may take, and that an answer is kept.
PATIENCE, KEPT = 0.5, 8
LIVE = tuple(sorted(RUN_LIVE, reverse=True))


@dataclass(frozen=True)
class Facet:
    """One choice. ``changes`` are parameters of the address; ``count`` is bounded, None where it took too long."""

    word: str
    state: str
    kind: str
    changes: dict[str, str]
    current: bool
    count: int | None = None


def facets(filters: RunFilters) -> list[Facet]:
    """All, each state, overdue and incompletely undone runs among those that the other filters leave. One query."""
    base = replace(filters, state=(), overdue=None, compensation=())
    plain = filters.overdue is None and not filters.compensation
    kinds: list[tuple[str, str, str, RunFilters, bool]] = [
        ("All", "", "", base, plain and not filters.state),
        ("Live", "", "", replace(base, state=LIVE), plain and set(filters.state) == set(LIVE)),
    ]
    for state in RunState:
        chosen = plain and filters.state == (state,)
        kinds.append(("", str(state), "run", replace(base, state=(str(state),)), chosen))
    kinds.append(("", "overdue", "mark", replace(base, overdue=True), bool(filters.overdue)))
    partial = (str(Undo.PARTIAL),)
    kinds.append(("", "partial", "undo", replace(base, compensation=partial), filters.compensation == partial))
    counts = _counts([kind[3] for kind in kinds])
    return [
        Facet(word, state, kind, _changes(wanted), current, count)
        for (word, state, kind, wanted, current), count in zip(kinds, counts, strict=True)
    ]


def _changes(wanted: RunFilters) -> dict[str, str]:
    return {
        "state": ",".join(wanted.state),
        "overdue": "true" if wanted.overdue else "",
        "compensation": ",".join(wanted.compensation),
    }


def _counts(wanted: list[RunFilters]) -> list[int | None]:
    key = f"dashboard:facets:{make_tag(*wanted)}"
    kept: list[int | None] | None = cache.get(key)
    if kept is None:
        kept = _count(wanted)
        cache.set(key, kept, KEPT)
    return kept


def _count(wanted: list[RunFilters]) -> list[int | None]:
    parts: list[str] = []
    params: list[Any] = []
    for one in wanted:
        try:
            # In the order of the list, by which what is common is counted without reading the table from end to end.
            text, given = matching(one).values("pk")[: BOUND + 1].query.sql_with_params()
        except EmptyResultSet:
            text, given = "SELECT 1 WHERE false", ()
        parts.append(f"(SELECT count(*) FROM ({text}) x)")
        params += given

    def read() -> list[int | None]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT " + ", ".join(parts), params)
            return list(cursor.fetchone())

    try:
        return patiently(read, PATIENCE)
    except TooBroad:
        return [None] * len(wanted)
