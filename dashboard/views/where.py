"""One question, one answer: where is it?"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from dashboard.access import may, require_role
from dashboard.queries.version import version_tag
from dashboard.queries.where import answer
from dashboard.render import live_page, not_modified


@require_role("viewer", "You have no access to runs. Whether there is one for what you asked is not told.")
def where(request: HttpRequest) -> HttpResponse:
    """The answer about whatever was pasted (``?q=``): an id, a subject, a label, in sentences."""
    support = may(request.user, "support")
    tag = version_tag(request.get_full_path(), support)
    if (same := not_modified(request, tag)) is not None:
        return same
    q = request.GET.get("q", "")
    found = answer(q)
    context = {"q": q.strip(), "may_share": support, **vars(found)}
    return live_page(request, "where/index.html", context, tag=tag, live=found.found is not None)
