"""Keyset pages in both directions, and counts that stop at a bound."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.cache import cache
from django.db.models import Model, QuerySet

from dashboard.nav import BOUND
from orchestrator.core.errors import Invalid
from orchestrator.engine.find import TooBroad, patiently

M = TypeVar("M", bound=Model)
#: Seconds that a count may take, and for which "more than can be counted" is kept.
PATIENCE, KEPT_SECONDS = 0.5, 30
_UNKNOWN = -1


@dataclass(frozen=True)
class Page(Generic[M]):
    """One page, newest first. ``previous`` and ``next`` are cursors for newer and older rows, or empty."""

    items: list[M]
    previous: str = ""
    next: str = ""


def keyset(
    rows: QuerySet[M],
    cursor: str,
    limit: int,
    *,
    encode: Callable[[Any], str] = str,
    decode: Callable[[str], Any] = int,
) -> Page[M]:
    """A page of ``rows`` by primary key, descending. A cursor is ``a.KEY`` (after: older) or ``b.KEY`` (newer).

    Raises:
        Invalid: for a cursor that no page made.
        TooBroad: when it takes longer than a page may.
    """
    way, key = _read(cursor, decode)
    if way == "b":
        found = patiently(lambda: list(rows.filter(pk__gt=key).order_by("pk")[: limit + 1]))
        more_newer, more_older = len(found) > limit, True
        found = found[:limit][::-1]
    else:
        older = rows.filter(pk__lt=key) if way else rows
        found = patiently(lambda: list(older.order_by("-pk")[: limit + 1]))
        more_newer, more_older = bool(way), len(found) > limit
        found = found[:limit]
    if not found:
        # Past either end: back to where there is something.
        return Page(
            [], next="" if way != "b" else f"a.{encode(key)}", previous=f"b.{encode(key)}" if way == "a" else ""
        )
    return Page(
        found,
        previous=f"b.{encode(found[0].pk)}" if more_newer else "",
        next=f"a.{encode(found[-1].pk)}" if more_older else "",
    )


def _read(cursor: str, decode: Callable[[str], Any]) -> tuple[str, Any]:
    if not cursor:
        return "", None
    way, _, text = cursor.partition(".")
    if way in ("a", "b"):
        try:
            return way, decode(text)
        except (ValueError, OverflowError, Invalid):
            pass
    raise Invalid("the address names a page that does not exist; start again from the first", field="cursor")


def small_int(text: str) -> int:
    """A primary key from a cursor.

    Raises:
        ValueError: for anything that is not one.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(text)
    return int(text)


def bounded_count(rows: QuerySet[Any], patience: float = PATIENCE) -> int | None:
    """How many rows, at most :data:`dashboard.nav.BOUND` + 1; nothing when counting takes too long.

    Counted along the primary key, so that what is common ends early and no table is read from end to end. That there
    are too many to count is kept for a while: it costs most and changes least.
    """
    key = f"many:{hashlib.blake2b(repr(rows.query.sql_with_params()).encode('utf-8', 'replace')).hexdigest()[:32]}"
    known: int | None = cache.get(key, _UNKNOWN)
    if known != _UNKNOWN:
        return known
    try:
        found = patiently(rows.order_by("-pk")[: BOUND + 1].count, patience)
        if found <= BOUND:
            return found
    except TooBroad:
        found = None
    cache.set(key, found, KEPT_SECONDS)
    return found
