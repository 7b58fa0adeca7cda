"""From a page of the dashboard to the same thing in the admin; the way back stands beside each row there."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

#: The admin's model by the name of the page, and which part of the address is its key.
_OF_PAGE = {
    **dict.fromkeys(("overview", "runs", "overdue", "where"), ("run", "")),
    **dict.fromkeys(("workflows", "workflow"), ("definition", "")),
    **dict.fromkeys(("audit", "handover"), ("auditrecord", "")),
    "run": ("run", "run_id"),
    "charts": ("rolluphour", ""),
    "dead-letters": ("deadletter", ""),
    "approvals": ("step", ""),
    "bulk-latest": ("bulkoperation", ""),
    "bulk": ("bulkoperation", "operation_id"),
    "schedules": ("schedule", ""),
    "queues": ("topic", ""),
    "health": ("beat", ""),
}
#: What narrows the admin's list to what the page shows, by the name of the page.
_NARROWED = {"approvals": "?waiting_for__exact=approval&state__exact=waiting"}


def record_of(request: HttpRequest) -> str:
    """The address of the admin's page of what this page shows; empty where there is none or the user may not go."""
    match = request.resolver_match
    if match is None or match.url_name not in _OF_PAGE or not getattr(request.user, "is_staff", False):
        return ""
    model, key = _OF_PAGE[match.url_name]
    if key:
        return reverse(f"admin:orchestrator_{model}_change", args=[match.kwargs[key]])
    narrowed = _NARROWED.get(match.url_name, "")
    if match.url_name == "workflow":
        narrowed = "?" + urlencode({"workflow": match.kwargs["name"]})
    return reverse(f"admin:orchestrator_{model}_changelist") + narrowed
