"""The overview."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from dashboard.access import require_role
from dashboard.queries.overview import overview as read
from dashboard.queries.overview_words import opening
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified


@require_role("viewer")
def overview(request: HttpRequest) -> HttpResponse:
    """How things stand, and what wants somebody."""
    tag = version_tag("overview")
    if (same := not_modified(request, tag)) is not None:
        return same
    page = read()
    return live_page(request, "overview/index.html", {"page": page, "opening": opening(page)}, tag=tag)
