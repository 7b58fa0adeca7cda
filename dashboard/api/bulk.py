"""Calls on many: replay or discard dead letters, retry or cancel runs; and how far such an operation has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboard.api.answers import Error, answer
from dashboard.api.auth import OPERATOR, VIEWER, actor_of
from dashboard.api.bulk_shapes import Bulk, BulkOperation, BulkPreview, BulkReport, Move
from dashboard.api.params import LIST, described, only
from dashboard.queries import bulk_filters
from dashboard.queries.run_filters import parse_limit
from orchestrator.core.bulk import BulkVerb, ItemState
from orchestrator.core.errors import Invalid
from orchestrator.engine import bulk, bulk_report

router = Router(tags=["bulk"])
STATE = described("state", "Only items in this state.", type="string", enum=[str(s) for s in ItemState])


def _call(verb: BulkVerb) -> Callable[[HttpRequest, Bulk], HttpResponse]:
    def act(request: HttpRequest, body: Bulk) -> HttpResponse:
        filters = None if body.filter is None else bulk_filters.parse(verb, _texts(body.filter))
        if body.dry_run:
            return answer(bulk_report.preview_json(bulk.preview(verb, filters, body.ids)))
        made = bulk.start(verb, actor_of(request), body.reason, filters=filters, ids=body.ids)
        return answer(bulk_report.to_json(made), 202)

    act.__name__ = f"{verb}_many"
    act.__doc__ = (
        f"{verb.capitalize()} many {verb.objects()}: by `ids`, or all that match `filter` now. "
        "With `dry_run` only counted; else the set is frozen and worked off, see `GET /bulk/{id}`."
    )
    return act


for _path, _verb in (
    ("/dead-letters/replay", BulkVerb.REPLAY),
    ("/dead-letters/discard", BulkVerb.DISCARD),
    ("/runs/retry", BulkVerb.RETRY),
    ("/runs/cancel", BulkVerb.CANCEL),
):
    router.add_api_operation(
        _path,
        ["POST"],
        _call(_verb),
        auth=OPERATOR,
        response={202: BulkOperation, 200: BulkPreview, 422: Error},
        operation_id=f"bulk_{_verb}",
    )


@router.get(
    "/bulk/{operation_id}",
    auth=VIEWER,
    response={200: BulkReport, (404, 422): Error},
    openapi_extra={"parameters": [STATE, *LIST]},
)
def read_bulk(request: HttpRequest, operation_id: str) -> HttpResponse:
    """How far it has come, and a page of the set with what became of each."""
    only(request.GET, "state", "cursor", "limit")
    found = bulk.get(operation_id)
    limit = parse_limit(request.GET.get("limit"))
    page = bulk_report.items(found.pk, request.GET.get("cursor", ""), limit, request.GET.get("state", ""))
    items = [bulk_report.item_json(item) for item in page.items]
    return answer({**bulk_report.to_json(found), "items": items, "next_cursor": page.next_cursor or None})


@router.post("/bulk/{operation_id}/stop", auth=OPERATOR, response={200: BulkOperation, (404, 409, 422): Error})
def stop_bulk(request: HttpRequest, operation_id: str, body: Move) -> HttpResponse:
    """Do nothing more; what was done stays."""
    bulk.stop(operation_id, actor_of(request), body.reason)
    return answer(bulk_report.to_json(bulk.get(operation_id)))


@router.post("/bulk/{operation_id}/resume", auth=OPERATOR, response={200: BulkOperation, (404, 409, 422): Error})
def resume_bulk(request: HttpRequest, operation_id: str, body: Move) -> HttpResponse:
    """Go on with what is left of the set."""
    bulk.resume(operation_id, actor_of(request), body.reason)
    return answer(bulk_report.to_json(bulk.get(operation_id)))


def _texts(given: dict[str, Any]) -> dict[str, list[str]]:
    """Criteria of a JSON object as the texts that an address would hold."""
    return {name: _values(name, value) for name, value in given.items()}


def _values(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str | int):
        return [str(value)]
    if name == "label" and isinstance(value, dict):
        return [f"{key}:{one}" for key, one in value.items()]
    if isinstance(value, list) and all(isinstance(one, str | int) and not isinstance(one, bool) for one in value):
        return [str(one) for one in value]
    raise Invalid(f"filter.{name} is a text, a number, true or false, or a list of texts", field=f"filter.{name}")
