"""Permanent failures, those alike together."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db import connection

from dashboard.keeping import kept_if_many
from dashboard.nav import BOUND, frame
from orchestrator.core.errors import Invalid
from orchestrator.engine import find_dead_letters
from orchestrator.engine.explain_words import error_text
from orchestrator.models import DeadLetter

PAGE = 50

_GROUPS = f"""
WITH recent AS (
  SELECT id, fingerprint, workflow, version, step, shard, cause, first_at, last_at FROM workflow_dead_letters
  WHERE state = 'open' ORDER BY last_at DESC, id DESC LIMIT {BOUND + 1}
), by_version AS (
  SELECT fingerprint, jsonb_object_agg(version, n) AS versions
  FROM (SELECT fingerprint, version, count(*) AS n FROM recent GROUP BY 1, 2) x GROUP BY 1
), alike AS (
  SELECT fingerprint, count(*) AS n, min(first_at) AS first_at, max(last_at) AS last_at, max(id) AS latest,
         count(DISTINCT shard) AS shards, min(shard) AS shard
  FROM recent GROUP BY fingerprint
)
SELECT a.fingerprint, a.n, a.first_at, a.last_at, a.shards, a.shard, d.workflow, d.step, d.cause, d.error, d.id,
       v.versions, s.queue, sum(a.n) OVER ()::int AS total
FROM alike a JOIN workflow_dead_letters d ON d.id = a.latest JOIN by_version v ON v.fingerprint = a.fingerprint
LEFT JOIN workflow_steps s ON s.id = d.step_row_id
ORDER BY a.n DESC, a.last_at DESC LIMIT %s
"""


@dataclass(frozen=True)
class Group:
    """Open dead letters with one fingerprint; ``example`` is the id of the latest, ``queue`` that of its step.

    ``versions``: how many failed on each version of the workflow, the newest first.
    """

    fingerprint: str
    count: int
    first_at: datetime
    last_at: datetime
    shards: int
    shard: str
    workflow: str
    step: str
    cause: str
    error: Any
    example: int
    versions: dict[int, int] = field(default_factory=dict)
    queue: str = ""

    @property
    def kind(self) -> str:
        """The error's type, or the cause where there is none."""
        kind = self.error.get("type") if isinstance(self.error, dict) else None
        return str(kind or self.cause.replace("_", " "))

    @property
    def message(self) -> str:
        """The error on one line, masked."""
        message = self.error.get("message") if isinstance(self.error, dict) else ""
        return error_text({"message": message}, 200)

    @property
    def place(self) -> str:
        """Where it fails: ``"480p of transcode"`` while all are of one shard."""
        return f"{self.shard} of {self.step}" if self.shards == 1 and self.shard else self.step


def groups(limit: int = 100) -> tuple[list[Group], int]:
    """Open dead letters by fingerprint, most first, and how many there are in all (bounded). One query; many are
    kept for a few seconds, until somebody does something.
    """
    return kept_if_many(f"dashboard:groups:{limit}:{frame().last_act}", lambda: _groups(limit), lambda found: found[1])


def _groups(limit: int) -> tuple[list[Group], int]:
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, [limit])
        rows = cursor.fetchall()
    return [Group(*_parsed(row)) for row in rows], rows[0][-1] if rows else 0


def _parsed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    error, versions = (json.loads(value) if isinstance(value, str) else value for value in (row[9], row[11]))
    counted = {int(version): versions[version] for version in sorted(versions, key=int, reverse=True)}
    return (*row[:9], error, row[10], counted, row[12] or "")


@dataclass(frozen=True)
class Letter:
    """One dead letter in a list."""

    letter: DeadLetter

    @property
    def message(self) -> str:
        """The error on one line, masked."""
        return error_text(self.letter.error, 240)


@dataclass(frozen=True)
class Letters:
    """A page of dead letters, latest first. ``problem`` says what to fix in the address."""

    items: list[Letter]
    next: str = ""
    problem: str = ""


def letters(filters: find_dead_letters.DeadLetterFilters, cursor: str) -> Letters:
    """A page of dead letters; a bad cursor gives none but says so."""
    try:
        found = find_dead_letters.page(filters, cursor or None, PAGE)
    except Invalid as error:
        return Letters([], problem=error.message)
    return Letters([Letter(letter) for letter in found.items], found.next_cursor or "")


def link_to_all(asked: dict[str, list[str]]) -> str:
    """The part of an address that asks for all dead letters that match; empty where that would be all there are."""
    given = [(name, value) for name, values in asked.items() for value in values if value and name != "state"]
    return urlencode(given)
