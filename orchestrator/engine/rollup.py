"""Counters: increments appended by the transactions that cause them, folded into totals, read as the sum of both.

Appending never waits for another transaction, as an update of a shared total would; and an increment is there if and
only if its cause committed, however late that was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from orchestrator.engine.db import sql
from orchestrator.models import Rollup, RollupDelta

FOLD_LIMIT = 20_000


@dataclass(frozen=True)
class Count:
    """A counter's value under its labels."""

    metric: str
    labels: dict[str, str]
    value: float


def fold(limit: int = FOLD_LIMIT) -> int:
    """Folds up to ``limit`` increments into the totals; answers how many. One statement, safe beside others."""
    with connection.cursor() as cursor:
        cursor.execute(sql("fold_rollups"), {"limit": limit})
        return int(cursor.fetchone()[0])


def add(metric: str, labels: dict[str, Any] | None = None, value: float = 1.0) -> None:
    """Appends an increment in the caller's transaction. The engine's hot statements append their own."""
    RollupDelta.objects.create(metric=metric, labels=labels or {}, value=value)


def totals() -> list[Count]:
    """Every counter, folded or not, read in one statement: an increment that moves is seen once.

    Rounded to 0.001, so that sums taken in another order never seem to go down.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT metric, labels::text, sum(value) FROM (
                    SELECT metric, labels, value FROM {Rollup._meta.db_table}
                    UNION ALL
                    SELECT metric, labels, value FROM {RollupDelta._meta.db_table}
                ) counts GROUP BY metric, labels ORDER BY metric, labels"""
        )
        return [Count(metric, _labels(labels), round(float(value), 3)) for metric, labels, value in cursor.fetchall()]


def _labels(text: str) -> dict[str, str]:
    return {key: str(value) for key, value in json.loads(text).items()}
