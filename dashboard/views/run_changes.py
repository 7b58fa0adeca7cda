"""What else people do to a run, each on a page that asks first: more time, a longer hold, a note, settling an undo."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from dashboard.access import require_role
from dashboard.queries.run_actions import open_undos
from dashboard.views.run_actions import listed, run_or_404, serve
from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict
from orchestrator.core.states import RunState
from orchestrator.core.text import clean
from orchestrator.engine import operate
from orchestrator.engine.clock import record_now
from orchestrator.engine.explain_words import clock_zone, error_text, label_of, number
from orchestrator.engine.unwind import is_held
from orchestrator.models import Run

METHODS = ["GET", "HEAD", "POST"]


@require_http_methods(METHODS)
@require_role("operator")
def extend(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Move a run's deadline."""
    run, given = run_or_404(run_id), _given(request, "deadline", "2h")

    def act(actor: Actor, reason: str) -> None:
        operate.extend_run(run_id, given, actor, reason)

    return serve(request, run, act, "Extended: the deadline has moved.", lambda: _extend_context(run, given))


def _extend_context(run: Run, given: str) -> dict[str, Any]:
    if run.state != RunState.RUNNING or run.stop or run.deadline_at is None:
        raise Conflict("only a running run that has started can be given more time")
    return {
        "crumb": "Extend",
        "title": "Give this run more time?",
        "text": f"Its deadline is {clock_zone(run.deadline_at, record_now())}. The new one counts from now.",
        "verb": "Extend",
        "keep": "Leave it as it is",
        "fields": [_time_field("deadline", "New deadline", given)],
    }


@require_http_methods(METHODS)
@require_role("operator")
def hold(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Hold a held run longer before it undoes."""
    run, given = run_or_404(run_id), _given(request, "until", "1h")

    def act(actor: Actor, reason: str) -> None:
        operate.hold_run(run_id, given, actor, reason)

    return serve(request, run, act, "Held longer: the undo waits.", lambda: _hold_context(run, given))


def _hold_context(run: Run, given: str) -> dict[str, Any]:
    if not is_held(run) or run.hold_until is None:
        raise Conflict("only a run that is held before its undo can be held longer")
    return {
        "crumb": "Hold longer",
        "title": "Hold this run longer?",
        "text": f"The undo begins by itself at {clock_zone(run.hold_until, record_now())}. Until then Retry goes on "
        "without an undo, and Undo now begins it.",
        "verb": "Hold longer",
        "keep": "Leave it as it is",
        "fields": [_time_field("until", "Hold until", given)],
    }


def _time_field(name: str, label: str, value: str) -> dict[str, str]:
    hint = "From now, such as 30m, 2h or 1d; or a time such as 2030-01-31T12:00:00Z."
    return {"name": name, "label": label, "value": value, "hint": hint}


def _given(request: HttpRequest, name: str, default: str) -> str:
    return clean(request.POST.get(name, default), 100).strip()


@require_http_methods(METHODS)
@require_role("support")
def note(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Add a note to a run's history."""
    run = run_or_404(run_id)

    def act(actor: Actor, text: str) -> None:
        operate.add_note(run_id, text, actor)

    context = {
        "crumb": "Note",
        "title": "Add a note",
        "text": "It stands in the audit trail of the run, for everybody who may see the run. Nothing else changes.",
        "verb": "Add note",
        "keep": "Leave it",
        "reason_label": "Note",
    }
    return serve(request, run, act, "Noted.", lambda: context)


@require_http_methods(METHODS)
@require_role("admin")
def settle(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Close what is left of an incomplete undo, with a note of what was done instead."""
    run, chosen = run_or_404(run_id), (request.POST if request.method == "POST" else request.GET).get("letter", "")
    letter = int(chosen) if chosen.isascii() and chosen.isdigit() and len(chosen) < 19 else None

    def act(actor: Actor, reason: str) -> None:
        operate.settle_undos(run_id, actor, reason, letter)

    done = "Settled. What is left of the undo is closed with your note."
    return serve(request, run, act, done, lambda: _settle_context(run, letter))


def _settle_context(run: Run, letter: int | None) -> dict[str, Any]:
    found = open_undos(run)
    if not found:
        raise Conflict("no undo of this run has failed and is still open")
    names = [(one.pk, label_of(one.step_row), error_text(one.error, 200)) for one in found]
    options = [("", f"all {len(found)}")] if len(found) > 1 else []
    options += [(str(pk), name) for pk, name, _ in names]
    return {
        "crumb": "Settle",
        "title": "Settle the undo by hand?",
        "text": f"{number(len(found), 'undo has', 'undos have')} failed for good. Settling executes nothing: it "
        "says that somebody has put right by hand what they were to undo. The last one clears the mark of the run.",
        "verb": "Settle",
        "keep": "Leave it open",
        "lists": [listed("Failed for good", [(name, error) for _, name, error in names])],
        "fields": [{"name": "letter", "label": "Which", "value": str(letter or ""), "options": options}],
        "reason_label": "What was done instead",
    }
