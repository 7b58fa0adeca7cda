"""How far a bulk operation has come, and what became of each of its set: for the API, the command line and the page."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.core.bulk import ItemState, Outcome
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask_text
from orchestrator.engine.bulk_preview import BulkPreview
from orchestrator.engine.find import MAX_PAGE
from orchestrator.models import BulkItem, BulkOperation


@dataclass(frozen=True)
class ItemPage:
    """Some of the set in their order, and the cursor of the next page; empty when there is none."""

    items: list[BulkItem]
    next_cursor: str


def items(operation: uuid.UUID, cursor: str = "", limit: int = 50, state: str = "") -> ItemPage:
    """One page of the set, all or those in one state.

    Raises:
        Invalid: for a cursor that no page made, a limit outside 1 to 200, an unknown state.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"limit is a whole number from 1 to {MAX_PAGE}", field="limit")
    found = BulkItem.objects.filter(operation_id=operation).order_by("position")
    if state:
        if state not in list(ItemState):
            raise Invalid(f"state {state[:40]!r} is none of {', '.join(ItemState)}", field="state")
        found = found.filter(state=state)
    if cursor:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise Invalid("the cursor is not one that a list answered as next_cursor", field="cursor")
        found = found.filter(position__gt=int(cursor))
    page = list(found[: limit + 1])
    return ItemPage(page[:limit], str(page[limit - 1].position) if len(page) > limit else "")


def remaining(operation: BulkOperation) -> int:
    """How many of the set nothing has been done about yet."""
    return operation.total - operation.done - operation.skipped - operation.failed


def to_json(operation: BulkOperation) -> dict[str, Any]:
    """An operation as the API and the command line print it."""
    return {
        "id": str(operation.pk),
        "verb": operation.verb,
        "state": operation.state,
        "note": mask_text(operation.note),
        "total": operation.total,
        "done": operation.done,
        "skipped": operation.skipped,
        "failed": operation.failed,
        "remaining": remaining(operation),
        "filter": operation.filter,
        "reason": mask_text(operation.reason),
        "actor": operation.actor,
        "created_at": operation.created_at,
        "finished_at": operation.finished_at,
    }


def item_json(item: BulkItem) -> dict[str, Any]:
    """What became of one: ``outcome`` is what came of its run (``ended``, ``failed_again``), null while not known."""
    known = item.outcome in (Outcome.ENDED, Outcome.FAILED_AGAIN)
    return {
        "position": item.position,
        "id": item.target,
        "run_id": None if item.run_id is None else str(item.run_id),
        "state": item.state,
        "detail": mask_text(item.detail),
        "outcome": item.outcome if known else None,
        "at": item.at,
    }


def preview_json(preview: BulkPreview) -> dict[str, Any]:
    """What would be done."""
    return {"dry_run": True, **asdict(preview)}
