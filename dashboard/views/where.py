"""One question, one answer: where is it?"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from dashboard.access import require_role
from dashboard.queries.version import version_tag
from dashboard.queries.where import answer
from dashboard.render import live_page, not_modified


@require_role("viewer")
def where(request: HttpRequest) -> HttpResponse:
    """The answer about a run id or subject (``?q=``), in sentences."""
    tag = version_tag(request.get_full_path())
    if (same := not_modified(request, tag)) is not None:
        return same
    q = request.GET.get("q", "").strip()
    found = answer(q)
    return live_page(request, "where/index.html", {"q": q, **vars(found)}, tag=tag, live=found.found is not None)
