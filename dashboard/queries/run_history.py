"""The whole history of one run as rows of a file: what each step did, every attempt that failed, what people did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from orchestrator.core.mask import mask, mask_text
from orchestrator.engine.explain_words import error_text
from orchestrator.models import Attempt, AuditRecord, Run, Step

#: Rows of each kind that are read, the latest.
MOST = 20_000
HEADER = ("at", "what", "step", "shard", "attempt", "cause", "error", "worker", "actor", "role", "reason", "before",
          "after")  # fmt: skip
Entry = tuple[datetime, int, Sequence[Any]]


def rows(run: Run) -> Iterator[Sequence[Any]]:
    """One row an event, oldest first; secrets masked. Three queries."""
    found: list[Entry] = [*_of_steps(run), *_of_attempts(run), *_of_audit(run)]
    if not any(entry[2][1] == "submit" for entry in found):
        blank = [None] * 6
        found.append((run.submitted_at, -1, (run.submitted_at, "submit", *blank, run.submitted_by, "", "", None, None)))
    for _, _, row in sorted(found, key=lambda entry: entry[:2]):
        yield row


def _of_steps(run: Run) -> Iterator[Entry]:
    columns = ("step", "shard", "kind", "state", "cause", "attempt", "worker", "started_at", "finished_at")
    for s in Step.objects.filter(run=run).order_by("-id").values(*columns)[:MOST]:
        place, undo = (s["step"], s["shard"], s["attempt"] or None), "undo " if s["kind"] == "compensation" else ""
        if s["started_at"]:
            row = (s["started_at"], f"{undo}started", *place, None, None, s["worker"], *[None] * 5)
            yield s["started_at"], 1, row
        if s["finished_at"]:
            row = (s["finished_at"], f"{undo}{s['state']}", *place, s["cause"], None, s["worker"], *[None] * 5)
            yield s["finished_at"], 3, row


def _of_attempts(run: Run) -> Iterator[Entry]:
    tries = Attempt.objects.filter(run=run).select_related("step_row").order_by("-id")
    for a in tries.defer("step_row__output", "step_row__item", "step_row__log", "step_row__error")[:MOST]:
        row = (a.finished_at, "attempt failed", a.step_row.step, a.step_row.shard, a.attempt, a.cause,
               error_text(a.error, 2_000), a.worker, *[None] * 5)  # fmt: skip
        yield a.finished_at, 2, row


def _of_audit(run: Run) -> Iterator[Entry]:
    for r in AuditRecord.objects.filter(run=run).order_by("-id")[:MOST]:
        row = (r.at, r.action, *[None] * 6, r.actor, r.role, mask_text(r.reason), mask(r.before), mask(r.after))
        yield r.at, 0 if r.action == "submit" else 4, row
