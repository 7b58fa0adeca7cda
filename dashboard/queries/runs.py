"""The list of runs: filters, keyset pages, where each stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from dashboard.queries import run_filters
from dashboard.queries.paging import Page, bounded_count, keyset
from orchestrator.core.errors import Invalid
from orchestrator.core.states import RunState
from orchestrator.engine.explain_brief import briefs
from orchestrator.models import Definition, Run

PAGE = 50


@dataclass(frozen=True)
class RunRow:
    """A run in a list. ``mark``: overdue, at_risk or nothing; ``delayed``: not due yet."""

    run: Run
    where: str
    mark: str
    delayed: bool


@dataclass(frozen=True)
class Listing:
    """A page of runs. ``total`` is bounded, or nothing when counting took too long; ``problem`` says what to fix."""

    rows: list[RunRow]
    page: Page[Run]
    total: int | None
    filters: run_filters.RunFilters
    problem: str = ""
    field: str = ""


def rows_of(runs: Sequence[Run], at_risk: Iterable[Any] = ()) -> list[RunRow]:
    """Runs with where they stand."""
    now, risky = timezone.now(), set(at_risk)
    said = briefs(runs, now)
    return [RunRow(run, said[run.id], _mark(run, risky, now), _delayed(run, now)) for run in runs]


def _mark(run: Run, risky: set[Any], now: datetime) -> str:
    if run.state != RunState.RUNNING:
        return ""
    if run.deadline_at and run.deadline_at < now:
        return "overdue"
    return "at_risk" if run.pk in risky else ""


def _delayed(run: Run, now: datetime) -> bool:
    waits = run.state == RunState.RUNNING and run.started_at is None
    return bool(waits and run.available_at and run.available_at > now)


def listing(params: QueryDict) -> Listing:
    """The page that an address asks for. A value that cannot be read gives no rows but says what to fix."""
    empty = run_filters.RunFilters()
    try:
        filters = run_filters.parse(dict(params.lists()))
        limit = run_filters.parse_limit(params.get("limit"), PAGE)
    except Invalid as error:
        return Listing([], Page([]), 0, empty, error.message, error.field or "")
    rows = run_filters.matching(filters).defer("input", "output")
    cursor = params.get("cursor", "")
    try:
        page = keyset(rows, cursor, limit, encode=run_filters.encode_cursor, decode=run_filters.decode_cursor)
    except Invalid as error:
        return Listing([], Page([]), 0, filters, error.message, error.field or "")
    alone = not cursor and not page.next
    total = len(page.items) if alone else bounded_count(rows)
    return Listing(rows_of(page.items), page, total, filters)


def workflow_names() -> list[str]:
    """Names of published workflows, for the filter."""
    return list(Definition.objects.order_by("workflow").values_list("workflow", flat=True).distinct()[:500])
