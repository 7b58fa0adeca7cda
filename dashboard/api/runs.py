"""Calls about runs: start, list, read, cancel, retry; and where a subject stands."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboard.api.answers import Error, RetryPreview, RunPage, Runs, SubjectAnswer, answer
from dashboard.api.answers import Run as RunShape
from dashboard.api.auth import OPERATOR, SUPPORT, VIEWER, actor_of
from dashboard.api.params import FILTERS, LIST, only
from dashboard.api.schemas import Cancel, Extend, Hold, Note, Retry, Submit, SubmitMany
from dashboard.queries import run_filters
from orchestrator.core.actor import Actor
from orchestrator.core.errors import Invalid, SwitchyardError
from orchestrator.core.ids import parse_run_id
from orchestrator.engine import describe, operate, subjects
from orchestrator.engine.submit import submit_once
from orchestrator.models import Run

router = Router(tags=["runs"])


@router.post("/runs", auth=OPERATOR, response={201: RunShape, 200: RunShape, (404, 409, 413, 422): Error})
def start_run(request: HttpRequest, body: Submit) -> HttpResponse:
    """Start a run; the same idempotency key again answers the same run, with 200."""
    run_id, made = submit_once(actor_of(request), **_arguments(body))
    return answer(describe.run_json(run_id), 201 if made else 200)


@router.post("/runs/batch", auth=OPERATOR, response={201: Runs, 200: Runs, (404, 409, 413, 422): Error})
def start_runs(request: HttpRequest, body: SubmitMany) -> HttpResponse:
    """Start up to 1,000 runs: all, or none where one is refused. Answers them in order; 200 if all existed before.

    The body is `{"runs": [...]}`; the list alone is taken too.
    """
    with transaction.atomic():
        started = [_start(n, one, actor_of(request)) for n, one in enumerate(body.runs)]
    return answer(
        {"items": _items([run_id for run_id, _ in started])}, 201 if any(made for _, made in started) else 200
    )


@router.get("/runs", auth=VIEWER, response={200: RunPage, 422: Error}, openapi_extra={"parameters": FILTERS + LIST})
def list_runs(request: HttpRequest) -> HttpResponse:
    """Runs that match all the filters, newest first, without payloads."""
    only(request.GET, *run_filters.NAMES, "cursor", "limit")
    filters = run_filters.parse(dict(request.GET.lists()))
    limit = run_filters.parse_limit(request.GET.get("limit"))
    page = run_filters.page(filters, request.GET.get("cursor"), limit)
    return answer({"items": describe.run_items(page.items), "next_cursor": page.next_cursor})


@router.get("/runs/{run_id}", auth=VIEWER, response={200: RunShape, 404: Error})
def read_run(request: HttpRequest, run_id: str) -> HttpResponse:
    """One run with its steps and compensations."""
    return answer(describe.run_json(parse_run_id(run_id)))


@router.post("/runs/{run_id}/cancel", auth=OPERATOR, response={200: RunShape, (404, 409, 422): Error})
def cancel_run(request: HttpRequest, run_id: str, body: Cancel) -> HttpResponse:
    """Stop a run and undo what it did."""
    found = parse_run_id(run_id)
    operate.cancel_run(found, actor_of(request), body.reason, force=body.force)
    return answer(describe.run_json(found))


@router.post("/runs/{run_id}/retry", auth=OPERATOR, response={200: RunShape | RetryPreview, (404, 409, 422): Error})
def retry_run(request: HttpRequest, run_id: str, body: Retry) -> HttpResponse:
    """Let a failed or cancelled run go on, or say with `dry_run` what would be executed again."""
    found = parse_run_id(run_id)
    if body.dry_run:
        return answer({"dry_run": True, **asdict(operate.preview_retry(found, body.from_step))})
    operate.retry_run(found, actor_of(request), body.reason, from_step=body.from_step)
    return answer(describe.run_json(found))


@router.post("/runs/{run_id}/extend", auth=OPERATOR, response={200: RunShape, (404, 409, 422): Error})
def extend_run(request: HttpRequest, run_id: str, body: Extend) -> HttpResponse:
    """Give a running run more time: a duration from now, or a time."""
    found = parse_run_id(run_id)
    operate.extend_run(found, body.deadline, actor_of(request), body.reason)
    return answer(describe.run_json(found))


@router.post("/runs/{run_id}/hold", auth=OPERATOR, response={200: RunShape, (404, 409, 422): Error})
def hold_run(request: HttpRequest, run_id: str, body: Hold) -> HttpResponse:
    """Give operators more time before a held run undoes. Its cancel begins the undo, its retry goes on without."""
    found = parse_run_id(run_id)
    operate.hold_run(found, body.until, actor_of(request), body.reason)
    return answer(describe.run_json(found))


@router.post("/runs/{run_id}/note", auth=SUPPORT, response={200: RunShape, (404, 422): Error})
def note_run(request: HttpRequest, run_id: str, body: Note) -> HttpResponse:
    """Add a note to a run's history."""
    found = parse_run_id(run_id)
    operate.add_note(found, body.note, actor_of(request))
    return answer(describe.run_json(found))


@router.get("/subjects/{text:subject_id}", auth=SUPPORT, response={200: SubjectAnswer, 404: Error})
def read_subject(request: HttpRequest, subject_id: str) -> HttpResponse:
    """Where a subject's work stands: `answer` for support, `reply` for the customer."""
    return answer(subjects.to_json(subjects.about(subject_id)))


def _arguments(body: Submit) -> dict[str, Any]:
    """What ``submit_once`` takes."""
    given = body.model_dump(exclude_none=True)
    for n, text in enumerate(given.get("after", ())):
        try:
            given["after"][n] = uuid.UUID(text)
        except ValueError:
            raise Invalid(f"after: {text[:100]!r} is not the id of a run", field=f"after[{n}]") from None
    return given


def _start(place: int, body: Submit, actor: Actor) -> tuple[uuid.UUID, bool]:
    """One run of a batch; a refusal names its place in it."""
    try:
        return submit_once(actor, **_arguments(body))
    except SwitchyardError as refused:
        refused.message = f"runs[{place}]: {refused.message}"
        refused.field = f"runs[{place}]" + (f".{refused.field}" if refused.field else "")
        raise


def _items(ids: list[uuid.UUID]) -> list[dict[str, Any]]:
    found = {item["id"]: item for item in describe.run_items(describe.for_items(Run.objects.filter(pk__in=ids)))}
    return [found[str(run_id)] for run_id in ids]
