"""Calls about dead letters: list, replay, discard, settle."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboard.api.answers import DeadLetterItem, DeadLetterPage, Error, answer
from dashboard.api.auth import ADMIN, OPERATOR, VIEWER, actor_of
from dashboard.api.params import DEAD_LETTER_FILTERS, LIST, number, only
from dashboard.api.schemas import Note, Why
from dashboard.queries import bulk_filters
from dashboard.queries.run_filters import parse_limit
from orchestrator.engine import find_dead_letters, operate

router = Router(tags=["dead letters"])
EXTRA = {"parameters": DEAD_LETTER_FILTERS + LIST}


@router.get("/dead-letters", auth=VIEWER, response={200: DeadLetterPage, 422: Error}, openapi_extra=EXTRA)
def list_dead_letters(request: HttpRequest) -> HttpResponse:
    """Permanent failures, latest first; the open ones unless `state` says otherwise."""
    only(request.GET, *bulk_filters.LETTER_NAMES, "cursor", "limit")
    limit = parse_limit(request.GET.get("limit"))
    page = find_dead_letters.page(bulk_filters.letters(request.GET.dict()), request.GET.get("cursor"), limit)
    return answer({"items": [find_dead_letters.item(row) for row in page.items], "next_cursor": page.next_cursor})


@router.get("/dead-letters/{dead_letter_id}", auth=VIEWER, response={200: DeadLetterItem, 404: Error})
def read_dead_letter(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """One dead letter."""
    return _letter(number(dead_letter_id, "dead letter"))


@router.post(
    "/dead-letters/{dead_letter_id}/replay", auth=OPERATOR, response={200: DeadLetterItem, (404, 409, 422): Error}
)
def replay_dead_letter(request: HttpRequest, dead_letter_id: str, body: Why) -> HttpResponse:
    """Execute again what failed for good; its run goes on from there."""
    found = number(dead_letter_id, "dead letter")
    operate.replay_dead_letter(found, actor_of(request), body.reason)
    return _letter(found)


@router.post(
    "/dead-letters/{dead_letter_id}/discard", auth=OPERATOR, response={200: DeadLetterItem, (404, 409, 422): Error}
)
def discard_dead_letter(request: HttpRequest, dead_letter_id: str, body: Why) -> HttpResponse:
    """Close it without executing anything."""
    found = number(dead_letter_id, "dead letter")
    operate.discard_dead_letter(found, actor_of(request), body.reason)
    return _letter(found)


@router.post(
    "/dead-letters/{dead_letter_id}/settle", auth=ADMIN, response={200: DeadLetterItem, (404, 409, 422): Error}
)
def settle_dead_letter(request: HttpRequest, dead_letter_id: str, body: Note) -> HttpResponse:
    """Close that of an undo with a note of what was done instead; the last one clears the run's `partial`."""
    found = number(dead_letter_id, "dead letter")
    operate.settle_dead_letter(found, actor_of(request), body.note)
    return _letter(found)


def _letter(dead_letter_id: int) -> HttpResponse:
    return answer(find_dead_letters.item(find_dead_letters.get(dead_letter_id)))
