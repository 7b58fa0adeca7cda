"""The audit trail, as a file too, and the last hours to hand over."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from dashboard import export as files
from dashboard.access import require_role
from dashboard.queries import audit as read
from dashboard.queries import handover as shift
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified
from orchestrator.core.errors import Invalid


@require_safe
@require_role("viewer")
def audit(request: HttpRequest) -> HttpResponse:
    """What people did and what runs went through, newest first. The address holds the filters."""
    tag = version_tag(request.get_full_path())
    if (same := not_modified(request, tag)) is not None:
        return same
    found = read.records(request.GET)
    context = {"found": found, "given": found.given, "actions": read.ACTIONS, "filtered": any(found.given.values())}
    return live_page(request, "audit/index.html", context, tag=tag)


@require_safe
@require_role("viewer")
def handover(request: HttpRequest) -> HttpResponse:
    """What broke in the last hours (``?hours=8``), who did what, what is paused or held."""
    tag = version_tag(request.get_full_path())
    if (same := not_modified(request, tag)) is not None:
        return same
    context = {"page": shift.handover(request.GET.get("hours", "")), "periods": shift.PERIODS}
    return live_page(request, "audit/handover.html", context, tag=tag)


@require_safe
@require_role("viewer")
def export(request: HttpRequest) -> HttpResponseBase:
    """The records that the filters of the address leave, as CSV."""
    try:
        return files.answer("audit", files.AUDIT, files.audit_rows(read.matching(request.GET)))
    except Invalid as error:
        messages.error(request, f"No file was made: {error.message}.")
        return redirect(f"{reverse('audit')}?{request.GET.urlencode()}")
