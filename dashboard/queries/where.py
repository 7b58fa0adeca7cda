"""What ``/where/`` answers: a run by id, a subject, a label's value, what looks like it, or why there is nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboard.queries import run_filters
from dashboard.queries.runs import RunRow, rows_of
from orchestrator.core.errors import Invalid, NotFound
from orchestrator.engine.lookup import Absence, absence, look_up
from orchestrator.engine.subjects import SubjectAnswer

NEAR = 10


@dataclass(frozen=True)
class Found:
    """``found`` answers; ``labelled`` have the label ``key``; ``near`` look like it and ``absent`` says why not.

    ``problem`` says what to fix in the question.
    """

    found: SubjectAnswer | None = None
    rows: list[RunRow] = field(default_factory=list)
    labelled: list[RunRow] = field(default_factory=list)
    key: str = ""
    near: list[RunRow] = field(default_factory=list)
    absent: Absence | None = None
    mark: str = ""
    problem: str = ""


def answer(q: str) -> Found:
    """The answer to ``q``, as it was pasted."""
    if not q.strip():
        return Found()
    try:
        # The same check as of every filter: NUL, length, Unicode.
        run_filters.parse({"q": [q]})
        found = look_up(q)
    except Invalid as error:
        return Found(problem=_problem(error))
    except NotFound:
        return _near(q.strip())
    if found.about is None:
        return Found(labelled=rows_of(found.runs), key=found.key)
    rows = rows_of(found.about.runs)
    mark = next((row.mark for row in rows if row.run.pk == found.about.run.pk), "")
    return Found(found.about, rows, mark=mark)


def _near(q: str) -> Found:
    try:
        page = run_filters.page(run_filters.RunFilters(q=q), limit=NEAR)
    except Invalid as error:
        return Found(problem=_problem(error))
    return Found(near=rows_of(page.items), absent=absence(q))


def _problem(error: Invalid) -> str:
    """What to fix, without the name that the text has in the address."""
    said = error.message.removeprefix("q ")
    return f"That cannot be looked for: {'the text ' if said != error.message else ''}{said}."
