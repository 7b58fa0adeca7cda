"""Dead letters: by cause, one by one, replayed or discarded."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from dashboard.access import actor_of, may, require_role
from dashboard.queries import dead_letters as read
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified
from dashboard.words import DEAD_LETTER
from orchestrator.core.actor import Actor
from orchestrator.core.errors import NotFound, SwitchyardError
from orchestrator.engine import operate
from orchestrator.engine.find_dead_letters import DeadLetterFilters

#: As many as a page shows are done at once.
MAX_AT_ONCE = read.PAGE
_DONE = {"replay": "replayed", "discard": "discarded"}


@require_safe
@require_role("viewer")
def dead_letters(request: HttpRequest) -> HttpResponse:
    """Open failures by cause, and below them one by one."""
    tag = version_tag(request.get_full_path(), may(request.user, "operator"))
    if (same := not_modified(request, tag)) is not None:
        return same
    state = request.GET.get("state", "open")
    state = state if state in DEAD_LETTER or state == "any" else "open"
    fingerprint, workflow = request.GET.get("fingerprint", ""), request.GET.get("workflow", "")
    filters = DeadLetterFilters(None if state == "any" else state, _text(workflow), fingerprint=_text(fingerprint))
    found = read.letters(filters, request.GET.get("cursor", ""))
    groups, total = read.groups()
    context = {
        "found": found,
        "groups": groups,
        "total": total,
        "state": state,
        "states": DEAD_LETTER,
        "fingerprint": fingerprint,
        "workflow": workflow,
        "chosen": next((group for group in groups if group.fingerprint == fingerprint), None),
        "may_act": may(request.user, "operator"),
        "back": request.get_full_path(),
    }
    return live_page(request, "dead_letters/index.html", context, tag=tag)


def _text(given: str) -> str | None:
    """A filter's text; none for empty. What no row can hold matches nothing."""
    return given.replace("\x00", "\ufffd") or None


@require_POST
@require_role("operator")
def act(request: HttpRequest, verb: str) -> HttpResponse:
    """Replay or discard the dead letters named in the form; each is told on its own when it cannot be done."""
    action: Callable[[int, Actor, str], object] = (
        operate.replay_dead_letter if verb == "replay" else operate.discard_dead_letter
    )
    done, told = 0, []
    ids = request.POST.getlist("id")[:MAX_AT_ONCE]
    for text in ids:
        try:
            action(_id(text), actor_of(request), request.POST.get("reason", ""))
            done += 1
        except SwitchyardError as error:
            told.append(error.message)
    if done:
        messages.success(request, f"{done} dead letter{'' if done == 1 else 's'} {_DONE[verb]}.")
    if told:
        others = f" ({len(told)} of {len(ids)} were not {_DONE[verb]})" if len(told) > 1 else ""
        messages.error(request, f"{told[0]}{others}")
    if not ids:
        messages.error(request, "No dead letter was named, so nothing was done.")
    back = request.POST.get("back", "")
    return redirect(back if url_has_allowed_host_and_scheme(back, {request.get_host()}) else "dead-letters")


def _id(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise NotFound(f"{text[:40]!r} is not the number of a dead letter")
