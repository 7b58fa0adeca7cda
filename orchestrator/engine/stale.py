"""Pages that have gone out of date: what was shown when somebody decided must still be so when it is done.

Whatever asks before it acts carries a sign of what it showed. The sign is of what people and ends change, not of what
a live run changes by itself every second: a busy run can be cancelled from a page that is a minute old.
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.core.errors import Conflict
from orchestrator.models import DeadLetter, Run, Step

_LOOK_AGAIN = "This page was out of date"


def sign_of_run(run: Run) -> str:
    """Changes when a run is retried, stopped, held or extended, and when it ends."""
    moments = (run.started_at, run.deadline_at, run.hold_until, run.finished_at)
    return "|".join([run.state, run.stop or "", str(run.retries), *(at.isoformat() if at else "" for at in moments)])


def sign_of_step(step: Step, run: Run) -> str:
    """Changes with each attempt of the step, and when it or its run is made to go on anew."""
    return f"{step.attempt}.{step.generation}.{run.retries}"


def sign_of_letter(letter: DeadLetter) -> str:
    """Changes when the same row fails for good once more."""
    return f"{letter.count}.{letter.state}"


def check_run(run_id: UUID, seen: str) -> None:
    """Refuses what was decided on an earlier state of a run; an empty ``seen`` is taken from no page.

    Raises:
        Conflict: the run has moved on.
    """
    run = Run.objects.filter(pk=run_id).defer("input", "output", "error").first() if seen else None
    if run is not None and sign_of_run(run) != seen:
        raise Conflict(f"{_LOOK_AGAIN}: the run has changed since it was shown. Look at what it says now")


def check_step(step_id: int, seen: str) -> None:
    """The same for a step.

    Raises:
        Conflict: the step has moved on.
    """
    step = Step.objects.filter(pk=step_id).select_related("run").only("attempt", "generation", "run__retries").first()
    if seen and step is not None and sign_of_step(step, step.run) != seen:
        raise Conflict(f"{_LOOK_AGAIN}: the step has been made ready again since it was shown. Look at it once more")


def check_letter(letter_id: int, seen: str) -> None:
    """The same for a dead letter.

    Raises:
        Conflict: it was replayed or discarded, or has failed again.
    """
    letter = DeadLetter.objects.filter(pk=letter_id).only("count", "state").first() if seen else None
    if letter is not None and sign_of_letter(letter) != seen:
        what = "it has failed again" if letter.state == "open" else f"it was {letter.state}"
        raise Conflict(f"{_LOOK_AGAIN}: {what} since this was shown. Look at it once more")
