"""Queues and workers, topics and locks, health, and the audit trail."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from dashboard.access import actor_of, may, require_role
from dashboard.queries import audit as trail
from dashboard.queries import health as state
from dashboard.queries.limits import topics_and_locks
from dashboard.queries.queues import queues as read_queues
from dashboard.queries.queues import workers as read_workers
from dashboard.render import live_page
from dashboard.views.pauses import back
from orchestrator.core.actor import require
from orchestrator.core.errors import Invalid, SwitchyardError
from orchestrator.core.text import clean
from orchestrator.engine.explain_words import sentences, upper_first
from orchestrator.engine.limits import set_topic_limit


@require_role("viewer")
def queues(request: HttpRequest) -> HttpResponse:
    """What waits for workers, and the workers; what is limited by topics and locks."""
    found = read_workers()
    topics, locks = topics_and_locks()
    context = {
        "topics": topics,
        "locks": locks,
        "queues": read_queues(found),
        "workers": found,
        "may_act": may(request.user, "operator"),
        "back": request.get_full_path(),
    }
    return live_page(request, "queues/index.html", context)


@require_POST
@require_role("operator")
def limit(request: HttpRequest) -> HttpResponse:
    """Change the limit of the topic that the form names: a whole number, or nothing for unlimited."""
    name, text = request.POST.get("name", ""), request.POST.get("limit", "").strip()
    reason, actor = clean(request.POST.get("reason", ""), 2000), actor_of(request)
    try:
        require(actor, "operator", reason)
        if text and not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise Invalid(f"{text[:40]!r} is not a limit: a whole number from 0, or nothing for unlimited")
        set_topic_limit(name, int(text) if text else None, actor, reason)
    except SwitchyardError as problem:
        messages.error(request, f"{sentences(upper_first(problem.message))} Nothing was changed.")
    else:
        now = {"": "unlimited", "0": "paused: its limit is 0"}.get(text, f"limited to {text}")
        messages.success(request, f"The topic {name} is {now}.")
    return back(request, "queues")


@require_role("viewer")
def health(request: HttpRequest) -> HttpResponse:
    """Whether the machinery itself is well."""
    return live_page(request, "health/index.html", {"page": state.health()})


@require_role("viewer")
def audit(request: HttpRequest) -> HttpResponse:
    """What people did and what runs went through, newest first."""
    found = trail.records(request.GET)
    return live_page(request, "audit/index.html", {"found": found})
