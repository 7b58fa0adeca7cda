"""How many runs each choice would leave, beside the other filters in force; bounded, and nothing when it takes long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.core.cache import cache
from django.core.exceptions import EmptyResultSet
from django.db import connection

from dashboard.nav import BOUND
from dashboard.render import make_tag
from orchestrator.core.states import RUN_LIVE, Cause, RunState, Undo
from orchestrator.engine.find import RunFilters, TooBroad, matching, patiently
from orchestrator.models import Definition

#: Seconds that counting may take, and that an answer is kept.
PATIENCE, KEPT = 0.5, 8
LIVE = tuple(sorted(RUN_LIVE, reverse=True))
#: Choices of one filter that are counted; those after them are offered without a number.
COUNTED = 20
#: Seconds that the counts of choices are kept: they stand still while the page is open.
CHOICES_KEPT = 30


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


@dataclass(frozen=True)
class Choice:
    """An option of a filter's list. ``count`` is bounded; None: not counted, or it took too long."""

    value: str
    count: int | None


#: Options by the filter's name.
Choices = dict[str, list[Choice]]


def choices(filters: RunFilters, workflows: list[str]) -> Choices:
    """What workflow, version and cause can be set to, with what each would leave. At most two queries, kept a while.

    Versions are offered for the workflow that is chosen; with one of them chosen the others are not counted, as its
    number means something else there. With a text to look for nothing is counted: it is dear.
    """
    offered: dict[str, list[Any]] = {"workflow": workflows, "cause": list(map(str, Cause)), "version": []}
    if filters.workflow:
        versions = Definition.objects.filter(workflow=filters.workflow).order_by("-version")
        offered["version"] = list(versions.values_list("version", flat=True)[:500])
    uncounted = {*offered} if filters.q else {"workflow"} if filters.version is not None else set()
    wanted = {
        (name, value): _set(filters, name, value)
        for name, values in offered.items()
        if name not in uncounted
        for value in values[:COUNTED]
    }
    counts = dict(zip(wanted, _counts(list(wanted.values()), CHOICES_KEPT) if wanted else [], strict=True))
    return {
        name: [Choice(str(value), counts.get((name, value))) for value in values] for name, values in offered.items()
    }


def _set(filters: RunFilters, name: str, value: Any) -> RunFilters:
    changes: dict[str, Any] = {name: (value,) if name == "cause" else value}
    return replace(filters, **changes)


def _changes(wanted: RunFilters) -> dict[str, str]:
    return {
        "state": ",".join(wanted.state),
        "overdue": "true" if wanted.overdue else "",
        "compensation": ",".join(wanted.compensation),
    }


def _counts(wanted: list[RunFilters], seconds: int = KEPT) -> list[int | None]:
    key = f"dashboard:facets:{make_tag(*wanted)}"
    kept: list[int | None] | None = cache.get(key)
    if kept is None:
        kept = _count(wanted)
        cache.set(key, kept, seconds)
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
