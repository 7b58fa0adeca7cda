"""Where a subject's work stands, over all of its runs: the answer of the support desk's one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import NotFound
from orchestrator.core.states import RUN_LIVE
from orchestrator.engine.describe import for_items, run_items
from orchestrator.engine.explain import Where, where
from orchestrator.models import Run

#: Runs that are looked at, newest first.
MAX_RUNS = 50


@dataclass(frozen=True)
class SubjectAnswer:
    """``run`` is the one that the answer is about; ``runs`` are the latest, newest first."""

    subject_id: str
    run: Run
    where: Where
    answer: str
    runs: list[Run]


def about(subject_id: str) -> SubjectAnswer:
    """The answer for a subject: of its runs the newest that is live, else the newest; a child run only alone.

    Raises:
        NotFound: no run has that subject.
    """
    found = for_items(Run.objects.filter(subject_id=subject_id).order_by("-id"))
    runs = [] if "\x00" in subject_id else list(found[:MAX_RUNS])
    if not runs:
        raise NotFound(f"no run has the subject {subject_id!r}", field="subject_id")
    chosen = min(runs, key=lambda run: (run.parent_run_id is not None, run.state not in RUN_LIVE))
    told = where(chosen)
    live = sum(run.state in RUN_LIVE for run in runs if run.pk != chosen.pk)
    more = f" {live} more of its runs {'is' if live == 1 else 'are'} live." if live else ""
    return SubjectAnswer(subject_id, chosen, told, f"{told.sentence} {told.next}".strip() + more, runs)


def to_json(found: SubjectAnswer) -> dict[str, Any]:
    """``{subject_id, answer, reply, runs}``, for the API and the command line."""
    return {
        "subject_id": found.subject_id,
        "answer": found.answer,
        "reply": found.where.reply,
        "runs": run_items(found.runs),
    }
