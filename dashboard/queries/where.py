"""What ``/where/`` answers: a run by id, a subject, or runs that look like it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from dashboard.queries import run_filters
from dashboard.queries.runs import RunRow, rows_of
from orchestrator.core.errors import Invalid, NotFound
from orchestrator.engine import subjects
from orchestrator.engine.explain import where
from orchestrator.engine.subjects import SubjectAnswer
from orchestrator.models import Run

NEAR = 10


@dataclass(frozen=True)
class Found:
    """``found`` answers; otherwise ``near`` are runs that look like it, or ``problem`` says what to fix."""

    found: SubjectAnswer | None = None
    rows: list[RunRow] = field(default_factory=list)
    near: list[RunRow] = field(default_factory=list)
    mark: str = ""
    problem: str = ""


def answer(q: str) -> Found:
    """The answer to ``q``, a run id or a subject."""
    if not q:
        return Found()
    try:
        # The same check as of every filter: NUL, length, Unicode.
        run_filters.parse({"q": [q]})
        found = _by_id(q) or subjects.about(q)
    except Invalid as error:
        return Found(problem=f"That cannot be looked for: {error.message}.")
    except NotFound:
        return _near(q)
    rows = rows_of(found.runs)
    mark = next((row.mark for row in rows if row.run.pk == found.run.pk), "")
    return Found(found, rows, mark=mark)


def _by_id(q: str) -> SubjectAnswer | None:
    try:
        run = Run.objects.filter(pk=uuid.UUID(q)).first()
    except ValueError:
        return None
    if run is None:
        return None
    told = where(run)
    return SubjectAnswer(run.subject_id, run, told, f"{told.sentence} {told.next}".strip(), [run])


def _near(q: str) -> Found:
    try:
        page = run_filters.page(run_filters.RunFilters(q=q), limit=NEAR)
    except Invalid as error:
        return Found(problem=f"That cannot be looked for: {error.message}.")
    return Found(near=rows_of(page.items))
