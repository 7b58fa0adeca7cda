"""Dead letters: by incident and cause, one by one, replayed or discarded, noted, as a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from dashboard import export as files
from dashboard.access import actor_of, may, require_role
from dashboard.queries import bulk_filters
from dashboard.queries import dead_letters as read
from dashboard.queries.incidents import incidents
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified
from dashboard.words import DEAD_LETTER
from orchestrator.core.actor import Actor
from orchestrator.core.errors import Invalid, NotFound, SwitchyardError
from orchestrator.engine import operate, stale
from orchestrator.engine.contention import floods
from orchestrator.engine.explain_words import upper_first
from orchestrator.engine.find_dead_letters import DeadLetterFilters, matching

#: As many as a page shows are done at once.
MAX_AT_ONCE = read.PAGE
_DONE = {"replay": "replayed", "discard": "discarded"}


@require_safe
@require_role("viewer")
def dead_letters(request: HttpRequest) -> HttpResponse:
    """Open failures by cause, and below them one by one."""
    tag = version_tag(request.get_full_path(), may(request.user, "operator"))
    if (same := not_modified(request, tag, shared=True)) is not None:
        return same
    asked = {name: request.GET.getlist(name) for name in bulk_filters.LETTER_NAMES if request.GET.get(name)}
    try:
        filters = bulk_filters.letters_of(asked)
        found = read.letters(filters, request.GET.get("cursor", ""))
    except Invalid as error:
        filters, found = DeadLetterFilters(), read.Letters([], problem=error.message)
    gathered, groups, total = incidents()
    chosen = [one for one in request.GET.getlist("fingerprint") if one]
    state = request.GET.get("state") or "open"
    context = {
        "found": found,
        "incidents": gathered,
        "floods": floods(),
        "groups": groups,
        "total": total,
        "state": state if state in (*DEAD_LETTER, "any") else "open",
        "narrowed": any(asked.get(name) for name in ("fingerprint", "workflow", "version", "step", "cause", "run")),
        "chosen": next((one for one in gathered if chosen and set(chosen) <= set(one.fingerprints)), None),
        "part": next((group for group in groups if chosen == [group.fingerprint]), None),
        "fingerprints": chosen,
        "version": filters.version,
        "all_query": read.link_to_all(asked) if filters.state == "open" else "",
        "may_act": may(request.user, "operator"),
        "may_note": may(request.user, "support"),
        "back": request.get_full_path(),
    }
    return live_page(request, "dead_letters/index.html", context, tag=tag, shared=True)


@require_safe
@require_role("viewer")
def export(request: HttpRequest) -> HttpResponseBase:
    """The dead letters that the filters of the address leave, as CSV."""
    asked = {name: request.GET.getlist(name) for name in bulk_filters.LETTER_NAMES if request.GET.get(name)}
    try:
        letters = matching(bulk_filters.letters_of(asked))
        return files.answer("dead-letters", files.DEAD_LETTERS, files.dead_letter_rows(letters))
    except Invalid as error:
        messages.error(request, f"No file was made: {error.message}.")
        return redirect("dead-letters")


@require_POST
@require_role("support")
def note(request: HttpRequest) -> HttpResponse:
    """Notes who looks after an incident, what is known of it and what holds the fix."""
    given = {name: request.POST.get(name, "") for name in ("owner", "note", "fixed_in")}
    try:
        seen = datetime.fromisoformat(text) if (text := request.POST.get("seen", "")) else None
        operate.note_incident(request.POST.getlist("fingerprint"), actor_of(request), seen=seen, **given)
    except ValueError:
        messages.error(request, "This form is from another page; open the incident again.")
    except SwitchyardError as error:
        messages.error(request, f"{upper_first(error.message)}.")
    else:
        messages.success(request, "Noted.")
    return _back(request)


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
            stale.check_letter(_id(text), request.POST.get(f"seen-{text}", ""))
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
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    back = request.POST.get("back", "")
    return redirect(back if url_has_allowed_host_and_scheme(back, {request.get_host()}) else "dead-letters")


def _id(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise NotFound(f"{text[:40]!r} is not the number of a dead letter")
