"""Published workflows, their versions and steps."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from dashboard.access import actor_of, may, require_role, role_of
from dashboard.queries import workflows as read
from dashboard.queries.step_times import compared
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified
from dashboard.views.pauses import back
from dashboard.views.upload import offers
from orchestrator.core.errors import SwitchyardError
from orchestrator.engine import operate


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
    tag = version_tag(request.get_full_path(), role_of(request.user))
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
            "times": compared(
                name, page.shown["version"], [v["version"] for v in page.versions], [step.id for step in page.steps]
            ),
            "runbook_url": _link(page.shown["runbook"]),
            "may_act": may(request.user, "operator"),
            "may_retire": may(request.user, "admin"),
            "by_upload": offers(name),
            "asked": request.GET.get("version", ""),
            "back": request.get_full_path(),
        },
        tag=tag,
    )


@require_POST
@require_role("admin")
def use(request: HttpRequest, name: str, version: str, verb: str) -> HttpResponse:
    """Retire a version, or take it into use again; back to its page."""
    change = operate.retire_version if verb == "retire" else operate.restore_version
    try:
        change(name, int(version), actor_of(request), request.POST.get("reason", ""))
    except SwitchyardError as problem:
        messages.error(request, problem.message)
    else:
        told = "is retired: no new runs start on it" if verb == "retire" else "is in use again"
        messages.success(request, f"{name} v{version} {told}.")
    return back(request, "workflows")


def _link(url: str) -> str:
    """The address if it is one to follow: nothing but http and https becomes a link."""
    return url if url.startswith(("https://", "http://")) else ""
