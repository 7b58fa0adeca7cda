"""One action on many: a page that says what would be done, the start, the progress, stop and resume."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.access import actor_of, may, require_role
from dashboard.queries import bulk as read
from dashboard.queries.version import version_tag
from dashboard.render import PAGE, live_page, not_modified
from orchestrator.core.bulk import BulkVerb
from orchestrator.core.errors import Conflict, Invalid, NotFound, SwitchyardError
from orchestrator.engine import bulk
from orchestrator.engine.explain_words import sentences, upper_first


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("operator")
def preview(request: HttpRequest) -> HttpResponse:
    """What would be done to those ticked (a form) or to all that match (a link). Changes nothing."""
    params = request.POST if request.method == "POST" else request.GET
    try:
        asked = read.asked(params)
    except Invalid as error:
        return _refused(request, error)
    if asked.ids == []:
        messages.error(request, f"No {asked.verb.objects(1)} was named, and no filter: nothing was done.")
        return redirect(_home(asked.verb))
    return _ask(request, asked)


@require_POST
@require_role("operator")
def start(request: HttpRequest) -> HttpResponse:
    """Freezes the set and begins; what is refused is told on the page that asked."""
    reason = request.POST.get("reason", "").replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    try:
        asked = read.asked(request.POST)
        made = bulk.start(asked.verb, actor_of(request), reason, filters=asked.filters, ids=asked.ids)
    except Invalid as error:
        if error.field != "reason":
            return _refused(request, error)
        return _ask(request, asked, error, reason)
    return redirect("bulk", made.pk)


def _ask(
    request: HttpRequest, asked: read.Asked, problem: SwitchyardError | None = None, reason: str = ""
) -> HttpResponse:
    try:
        seen = bulk.preview(asked.verb, asked.filters, asked.ids)
    except Invalid as error:
        return _refused(request, error, asked.verb)
    context: dict[str, Any] = {
        "asked": asked,
        "seen": seen,
        "shown": read.shown(seen),
        "home": _home(asked.verb),
        "danger": asked.verb in (BulkVerb.CANCEL, BulkVerb.DISCARD),
        "problem": problem,
        "told": _told(problem),
        "reason": reason,
        "layout": PAGE,
    }
    return render(request, "bulk/preview.html", context, status=422 if problem else 200)


def _refused(request: HttpRequest, problem: SwitchyardError, verb: BulkVerb | None = None) -> HttpResponse:
    context = {"refused": True, "told": _told(problem), "home": _home(verb), "layout": PAGE}
    return render(request, "bulk/preview.html", context, status=422)


def _told(problem: SwitchyardError | None) -> str:
    return sentences(upper_first(problem.message)) if problem else ""


def _home(verb: BulkVerb | None) -> str:
    return "dead-letters" if verb is not None and not verb.of_runs else "runs"


@require_safe
@require_role("viewer")
def operation(request: HttpRequest, operation_id: uuid.UUID) -> HttpResponse:
    """How far it has come; ``?state=`` narrows the results, ``?cursor=`` turns the page."""
    found = _find(operation_id)
    parts = (found.state, found.done, found.skipped, found.failed, found.first_until is None)
    tag = version_tag(request.get_full_path(), may(request.user, "operator"), *parts)
    if (same := not_modified(request, tag)) is not None:
        return same
    state = request.GET.get("state", "")
    context = {
        "page": read.progress(found, request.GET.get("cursor", ""), state),
        "op": found,
        "state": state,
        "states": read.STATES,
        "may_act": may(request.user, "operator"),
    }
    return live_page(request, "bulk/index.html", context, tag=tag)


@require_safe
@require_role("viewer")
def latest(request: HttpRequest) -> HttpResponse:
    """The newest operations."""
    return live_page(request, "bulk/latest.html", {"pages": read.latest()})


@require_POST
@require_role("operator")
def move(request: HttpRequest, operation_id: uuid.UUID, verb: str) -> HttpResponse:
    """Stop or resume."""
    act, done = (bulk.stop, "Stopped.") if verb == "stop" else (bulk.resume, "Resumed.")
    reason = request.POST.get("reason", "").replace("\x00", "\ufffd")
    try:
        act(operation_id, actor_of(request), reason)
        messages.success(request, done)
    except NotFound:
        raise Http404 from None
    except Conflict as error:
        messages.error(request, _told(error))
    return redirect("bulk", operation_id)


def _find(operation_id: uuid.UUID) -> Any:
    try:
        return bulk.get(operation_id)
    except NotFound as error:
        raise Http404(upper_first(error.message)) from None
