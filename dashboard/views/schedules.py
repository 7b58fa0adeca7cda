"""Schedules: when they run, what they missed; pause, resume and run now."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe

from dashboard.access import actor_of, may, require_role
from dashboard.queries.schedules import schedules as read_schedules
from dashboard.render import live_page
from dashboard.views.pauses import back
from orchestrator.core.errors import SwitchyardError
from orchestrator.engine import operate


@require_safe
@require_role("viewer")
def schedules(request: HttpRequest) -> HttpResponse:
    """Every schedule, what is wrong first."""
    context = {"schedules": read_schedules(), "may_act": may(request.user, "admin"), "back": request.get_full_path()}
    return live_page(request, "schedules/index.html", context)


@require_POST
@require_role("admin")
def act(request: HttpRequest, verb: str) -> HttpResponse:
    """Pause, resume or run now the schedule of the workflow that the form names."""
    workflow, reason = request.POST.get("workflow", ""), request.POST.get("reason", "")
    try:
        if verb == "run":
            run_id = operate.run_schedule_now(workflow, actor_of(request), reason)
            done = f"Started run {run_id} of {workflow}."
        else:
            change = operate.pause_schedule if verb == "pause" else operate.resume_schedule
            change(workflow, actor_of(request), reason)
            done = f"The schedule of {workflow} is {'paused' if verb == 'pause' else 'resumed'}."
    except SwitchyardError as problem:
        messages.error(request, problem.message)
    else:
        messages.success(request, done)
    return back(request, "schedules")
