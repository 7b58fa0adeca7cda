"""Which verbs a run's page offers. The engine checks again whatever is posted."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q
from django.urls import reverse

from orchestrator.core.actor import allows
from orchestrator.core.states import DeadLetterState, Kind, RunState, StepState, Undo
from orchestrator.engine.unwind import is_held
from orchestrator.models import DeadLetter, Run

#: Dead letters of undos on the page that settles them.
UNDOS = 100


@dataclass(frozen=True)
class Action:
    """A link to the page that asks first. ``css`` are classes of the button; ``more``: behind "More"."""

    verb: str
    url: str
    icon: str
    css: str = ""
    more: bool = False


def open_undos(run: Run) -> list[DeadLetter]:
    """Undos of the run that failed for good and that nobody has replayed or settled."""
    left = Q(state=DeadLetterState.OPEN) | Q(state=DeadLetterState.DISCARDED, step_row__state=StepState.FAILED)
    rows = DeadLetter.objects.filter(left, run=run, step_row__kind=Kind.COMPENSATION)
    rows = rows.select_related("step_row").defer("step_row__output", "step_row__item", "step_row__log")
    return list(rows.order_by("id")[:UNDOS])


def actions(run: Run, role: str, *, may_approve: bool = False, alike: bool = False) -> list[Action]:
    """What somebody with the role may do to the run in its present state, what is most likely right first.

    ``may_approve``: an approval waits that they may give. ``alike``: other runs failed of the same cause, so that
    trying this one again is no remedy.
    """
    found: list[Action] = []
    if allows(role, "operator"):
        found += _of_operators(run, may_approve, alike)
    if allows(role, "admin") and run.compensation == Undo.PARTIAL:
        found.append(Action("Settle…", reverse("run-settle", args=[run.id]), "check"))
    if allows(role, "support"):
        found.append(Action("Add a note…", reverse("run-note", args=[run.id]), "message-square", more=True))
        found.append(Action("Link for the customer…", reverse("run-share", args=[run.id]), "external-link", more=True))
    return found


def _of_operators(run: Run, may_approve: bool, alike: bool) -> list[Action]:
    def at(name: str) -> str:
        return reverse(f"run-{name}", args=[run.id])

    retry = Action("Retry…", at("retry"), "rotate-ccw", "grow" if alike else "primary grow")
    again = Action("Run again…", f"{reverse('run-new')}?from={run.id}", "repeat")
    if is_held(run):
        longer = Action("Hold longer…", at("hold"), "clock-plus")
        return [retry, longer, Action("Undo now…", at("cancel"), "undo-2", "danger", more=True)]
    if run.state == RunState.DONE:
        return [again]
    if run.state in (RunState.FAILED, RunState.CANCELLED):
        return [retry, again]
    if run.stop:
        return [Action("Force…", f"{at('cancel')}?force=1", "ban", "danger")]
    found = []
    if may_approve:
        found.append(Action("Approve…", f"{reverse('approvals')}?run={run.id}", "stamp", "primary grow"))
    if run.deadline_at is not None:
        found.append(Action("Extend…", at("extend"), "clock-plus", "grow"))
    found.append(Action("Cancel run…", at("cancel"), "ban", "danger"))
    return [*found, Action("Force…", f"{at('cancel')}?force=1", "ban", "danger", more=True)]
