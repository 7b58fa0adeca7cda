"""Setting a topic's limit, from the page of queues."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from dashboard.access import actor_of, require_role
from dashboard.views.pauses import back
from orchestrator.core.actor import require
from orchestrator.core.errors import Invalid, SwitchyardError
from orchestrator.engine import limits


@require_POST
@require_role("operator")
def set_limit(request: HttpRequest) -> HttpResponse:
    """``name``, ``limit`` (empty: unlimited) or ``default``, and ``reason`` of the form; then back to the page."""
    name = request.POST.get("name", "")
    try:
        limit: limits.Limit = limits.DEFAULT if "default" in request.POST else _limit(request.POST.get("limit", ""))
        actor, reason = actor_of(request), request.POST.get("reason", "")
        require(actor, "operator", reason)
        limits.set_topic_limit(name, limit, actor, reason)
    except SwitchyardError as problem:
        messages.error(request, problem.message)
    else:
        if limit == limits.DEFAULT:
            told = "goes by what the settings or its definition say again"
        else:
            told = "has no limit any more" if limit is None else f"takes {limit} at once from now on"
        messages.success(request, f"The topic {name} {told}.")
    return back(request, "queues")


def _limit(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Invalid(f"{text[:40]!r} is no limit: a whole number from 0, or nothing for unlimited", field="limit")
    return int(text)
