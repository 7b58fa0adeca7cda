"""Published workflows, their versions and steps."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse

from dashboard.access import may, require_role
from dashboard.queries import workflows as read
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified


@require_role("viewer")
def workflows(request: HttpRequest) -> HttpResponse:
    """Every published workflow."""
    tag = version_tag("workflows")
    if (same := not_modified(request, tag)) is not None:
        return same
    return live_page(request, "workflows/index.html", {"workflows": read.all_workflows()}, tag=tag)


@require_role("viewer")
def workflow(request: HttpRequest, name: str) -> HttpResponse:
    """One workflow: the steps of a version (``?version=3``, else the newest), its versions, its live runs."""
    tag = version_tag(request.get_full_path(), may(request.user, "operator"))
    if (same := not_modified(request, tag)) is not None:
        return same
    page = read.one_workflow(name, request.GET.get("version", ""))
    if page is None:
        raise Http404(f"No workflow {name} is published.")
    return live_page(
        request,
        "workflows/one.html",
        {
            "page": page,
            "runbook_url": _link(page.shown["runbook"]),
            "may_act": may(request.user, "operator"),
            "back": request.get_full_path(),
        },
        tag=tag,
    )


def _link(url: str) -> str:
    """The address if it is one to follow: nothing but http and https becomes a link."""
    return url if url.startswith(("https://", "http://")) else ""
