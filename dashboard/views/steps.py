"""Decisions about single steps: the approvals that runs wait for; approve, reject, skip."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe

from dashboard.access import actor_of, may, refuse, require_role
from dashboard.queries.approvals import approvals as read
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified
from dashboard.views.pauses import back
from orchestrator.core.errors import NotAllowed, SwitchyardError
from orchestrator.core.text import clean
from orchestrator.engine import operate, stale
from orchestrator.engine.explain_words import sentences, upper_first


@require_safe
@require_role("viewer")
def approvals(request: HttpRequest) -> HttpResponse:
    """What waits for somebody's decision, the one that runs out first at the top. ``?run=`` narrows it to one run."""
    actor = actor_of(request)
    tag = version_tag(request.get_full_path(), actor.role, sorted(actor.groups))
    if (same := not_modified(request, tag)) is not None:
        return same
    run = request.GET.get("run", "")
    context = {
        "found": read(actor, run, request.GET.get("cursor", "")),
        "run": run,
        "may_act": may(request.user, "operator"),
        "back": request.get_full_path(),
    }
    return live_page(request, "approvals/index.html", context, tag=tag)


_ACTS = {
    "approve": (operate.approve_step, "Approved. The run goes on."),
    "reject": (operate.reject_step, "Rejected."),
    "skip": (operate.skip_step, "Skipped. What comes behind it may start."),
}


@require_POST
@require_role("operator")
def act(request: HttpRequest, step_id: int, verb: str) -> HttpResponse:
    """Approve, reject or skip; a page that is out of date changes nothing and is told so."""
    answer, done = _ACTS[verb]
    try:
        stale.check_step(int(step_id), request.POST.get("seen", ""))
        answer(int(step_id), actor_of(request), clean(request.POST.get("reason", ""), 2000))
    except NotAllowed as problem:
        return refuse(request, sentences(upper_first(problem.message)))
    except SwitchyardError as problem:
        messages.error(request, f"{sentences(upper_first(problem.message))} Nothing was changed.")
    else:
        messages.success(request, done)
    return back(request, "approvals")
