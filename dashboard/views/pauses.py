"""Pause and resume of workflows and queues, from the pages that show them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from dashboard.access import actor_of, require_role
from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import SwitchyardError
from orchestrator.engine import operate


@require_POST
@require_role("operator")
def act(request: HttpRequest, verb: str, kind: str) -> HttpResponse:
    """Pause (``for``: how long) or resume what the form names, and go back to where it stood."""
    name, reason = request.POST.get("name", ""), request.POST.get("reason", "")
    try:
        if verb == "pause":
            operate.pause(kind, name, parse_duration(request.POST.get("for", "1h")), actor_of(request), reason)
        else:
            operate.resume(kind, name, actor_of(request), reason)
    except (SwitchyardError, BadDuration) as problem:
        messages.error(request, str(problem))
    else:
        messages.success(request, f"The {kind} {name} is {'paused' if verb == 'pause' else 'resumed'}.")
    return back(request, "queues" if kind == "queue" else "workflows")


def back(request: HttpRequest, home: str) -> HttpResponse:
    """To the page that the form came from, if it is one of ours."""
    where = request.POST.get("back", "")
    return redirect(where if url_has_allowed_host_and_scheme(where, {request.get_host()}) else home)
