"""Lists as CSV for a spreadsheet: streamed, bounded, secrets masked, and no cell that a spreadsheet would execute."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone

from orchestrator.core.mask import mask, mask_text
from orchestrator.engine.describe import iso
from orchestrator.engine.explain import briefs
from orchestrator.engine.explain_words import error_text
from orchestrator.engine.find import patiently
from orchestrator.models import AuditRecord, DeadLetter, Run

#: Rows of a file at most, the newest first.
MOST = 10_000
CHUNK = 500
#: What a spreadsheet takes for the beginning of a formula, also in the wide forms of East Asian keyboards.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
M = TypeVar("M", bound=Model)


def cell(value: Any) -> Any:
    """A value as it may stand in a cell: text that would begin a formula gets an apostrophe before it.

    Numbers stay numbers, times are ISO 8601 in UTC, other things JSON, None empty.
    """
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return iso(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = text.replace("\x00", "\ufffd")
    return f"'{text}" if text.lstrip(" \u00a0").startswith(_FORMULA) or text.startswith(_FORMULA) else text


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, text: str) -> str:
        """The line."""
        return text


def answer(name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> StreamingHttpResponse:
    """A file called ``NAME-2030-01-31.csv`` that the browser keeps.

    Raises:
        TooBroad: the first rows take too long to find.
    """
    writer = csv.writer(_Echo())
    found = iter(rows)
    first = list(islice(found, 1))

    def lines() -> Iterator[str]:
        yield writer.writerow(header)
        for row in chain(first, found):
            yield writer.writerow([cell(value) for value in row])

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}-{timezone.now():%Y-%m-%d}.csv"'
    response["Cache-Control"] = "no-store"
    return response


def chunks(rows: QuerySet[M]) -> Iterator[list[M]]:
    """The first :data:`MOST` rows, some at a time by primary key, so that no cursor is held open."""
    left, last = MOST, None
    ordered = rows.order_by("-pk")
    while left:
        wanted = (ordered if last is None else ordered.filter(pk__lt=last))[: min(CHUNK, left)]
        part: list[M] = patiently(partial(list, wanted))
        if not part:
            return
        yield part
        left, last = left - len(part), part[-1].pk


RUNS = ("run", "workflow", "version", "subject", "state", "cause", "undo", "where", "submitted", "started", "finished",
        "deadline", "labels")  # fmt: skip


def run_rows(rows: QuerySet[Run]) -> Iterator[Sequence[Any]]:
    """Runs with where each stands."""
    for part in chunks(rows.defer("input", "output")):
        said = briefs(part, timezone.now())
        for run in part:
            yield (
                str(run.pk), run.workflow, run.version, run.subject_id, run.state, run.cause, run.compensation,
                said[run.pk], run.submitted_at, run.started_at, run.finished_at, run.deadline_at, mask(run.labels),
            )  # fmt: skip


DEAD_LETTERS = ("dead letter", "run", "workflow", "version", "subject", "step", "shard", "state", "cause", "error",
                "fingerprint", "attempts", "count", "first failed", "last failed", "closed", "note")  # fmt: skip


def dead_letter_rows(rows: QuerySet[DeadLetter]) -> Iterator[Sequence[Any]]:
    """Dead letters with their error on one line."""
    for part in chunks(rows):
        for d in part:
            yield (
                d.pk, str(d.run_id), d.workflow, d.version, d.run.subject_id, d.step, d.shard, d.state, d.cause,
                error_text(d.error, 500), d.fingerprint, d.attempts, d.count, d.first_at, d.last_at, d.closed_at,
                mask_text(d.note),
            )  # fmt: skip


AUDIT = ("record", "at", "actor", "role", "action", "run", "concerns", "reason", "before", "after")


def audit_rows(rows: QuerySet[AuditRecord]) -> Iterator[Sequence[Any]]:
    """Audit records with the change as JSON."""
    for part in chunks(rows):
        for r in part:
            concerns = r.run.subject_id if r.run else r.subject
            yield (
                r.pk, r.at, r.actor, r.role, r.action, str(r.run_id or ""), concerns, mask_text(r.reason),
                mask(r.before), mask(r.after),
            )  # fmt: skip
