"""Calls about single steps: approve, reject, skip. Each answers the run as it is afterwards."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboard.api.answers import Error, answer
from dashboard.api.answers import Run as RunShape
from dashboard.api.auth import OPERATOR, actor_of
from dashboard.api.params import number
from dashboard.api.schemas import Why
from orchestrator.core.actor import Actor
from orchestrator.core.errors import NotFound
from orchestrator.engine import describe, operate
from orchestrator.models import Step

router = Router(tags=["steps"])
ANSWERS = {200: RunShape, (404, 409, 422): Error}


@router.post("/steps/{step_id}/approve", auth=OPERATOR, response=ANSWERS)
def approve_step(request: HttpRequest, step_id: str, body: Why) -> HttpResponse:
    """Give an approval that a run waits for; only its group, or an admin."""
    return _act(operate.approve_step, request, step_id, body)


@router.post("/steps/{step_id}/reject", auth=OPERATOR, response=ANSWERS)
def reject_step(request: HttpRequest, step_id: str, body: Why) -> HttpResponse:
    """Refuse an approval: the step has failed, with the reason as its error."""
    return _act(operate.reject_step, request, step_id, body)


@router.post("/steps/{step_id}/skip", auth=OPERATOR, response=ANSWERS)
def skip_step(request: HttpRequest, step_id: str, body: Why) -> HttpResponse:
    """Skip a step that waits or is queued; what comes behind it may start."""
    return _act(operate.skip_step, request, step_id, body)


def _act(act: Callable[[int, Actor, str], None], request: HttpRequest, step_id: str, body: Why) -> HttpResponse:
    found = number(step_id, "step")
    run_id = Step.objects.filter(pk=found).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound(f"there is no step {found}")
    act(found, actor_of(request), body.reason)
    return answer(describe.run_json(run_id))
