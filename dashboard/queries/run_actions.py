"""Which verbs a run's page offers. The engine checks again whatever is posted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from orchestrator.core.states import RunState
from orchestrator.models import Run


@dataclass(frozen=True)
class Action:
    """A link to the page that asks first. ``css`` are classes of the button."""

    verb: str
    url: str
    icon: str
    css: str = ""


def is_held(run: Run) -> bool:
    """Whether the run waits for an operator before it undoes: cancel undoes now, retry goes on without."""
    return run.state == RunState.COMPENSATING and run.hold_until is not None and run.hold_until > timezone.now()


def actions(run: Run, operator: bool, *, waits_for_approval: bool = False) -> list[Action]:
    """What an operator may do to the run in its present state; nothing for others."""
    if not operator:
        return []
    found: list[Action] = []
    held = is_held(run)
    cancel, retry = reverse("run-cancel", args=[run.id]), reverse("run-retry", args=[run.id])
    if run.state in (RunState.FAILED, RunState.CANCELLED) or held:
        found.append(Action("Retry…", retry, "rotate-ccw", "primary grow"))
    if run.state == RunState.RUNNING and waits_for_approval:
        with suppress(NoReverseMatch):
            found.append(Action("Approve…", f"{reverse('approvals')}?run={run.id}", "stamp", "primary grow"))
    if run.state not in (RunState.FAILED, RunState.CANCELLED, RunState.DONE):
        if not run.stop or held:
            found.append(Action("Cancel run…", cancel, "ban", "danger"))
        else:
            found.append(Action("Force…", f"{cancel}?force=1", "ban", "danger"))
    else:
        with suppress(NoReverseMatch):  # the page that starts runs is another one's
            found.append(Action("Run again…", f"{reverse('run-new')}?from={run.id}", "repeat"))
    return found
