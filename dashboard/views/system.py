"""Queues and workers, topics and locks, and health."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from dashboard.access import may, require_role
from dashboard.queries import health as state
from dashboard.queries.limits import topics_and_locks
from dashboard.queries.queues import queues as read_queues
from dashboard.queries.queues import workers as read_workers
from dashboard.render import live_page


@require_role("viewer")
def queues(request: HttpRequest) -> HttpResponse:
    """What waits for workers, and the workers; what is limited by topics and locks."""
    found = read_workers()
    topics, locks, lock_count = topics_and_locks()
    context = {
        "topics": topics,
        "locks": locks,
        "lock_count": lock_count,
        "queues": read_queues(found),
        "workers": found,
        "may_act": may(request.user, "operator"),
        "back": request.get_full_path(),
    }
    return live_page(request, "queues/index.html", context, shared=True)


@require_role("viewer")
def health(request: HttpRequest) -> HttpResponse:
    """Whether the machinery itself is well."""
    return live_page(request, "health/index.html", {"page": state.health()}, shared=True)
