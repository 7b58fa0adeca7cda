"""Bodies and answers of the calls on many."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, StringConstraints

from dashboard.api.answers import _Shape
from dashboard.api.schemas import Body, Reason

Id = Annotated[str, StringConstraints(min_length=1, max_length=100)] | int


class Bulk(Body):
    """Which ones, by `filter` or by `ids`, and why."""

    filter: dict[str, Any] | None = Field(
        None, description="Criteria by name, those of the list; at least one.", examples=[{"workflow": "video-upload"}]
    )
    ids: list[Id] | None = Field(None, description="Ids; one that stands twice counts once.", max_length=10_000)
    reason: Reason = ""
    dry_run: bool = Field(False, description="Change nothing, answer what would be done.")


class Move(Body):
    """Why it is stopped or goes on."""

    reason: Reason = ""


class BulkPreview(_Shape):
    """What would be done."""

    dry_run: bool
    verb: str
    total: int
    eligible: int = Field(description="In a state that allows it now; the others would be skipped.")
    missing: int = Field(description="Ids that are not there.")
    states: dict[str, int]
    versions: dict[str, int]
    steps: dict[str, int]
    side_effects: dict[str, int] | None = Field(
        description="Calls marked with ctx.external that would run again; null: looking took too long."
    )


class BulkOperation(_Shape):
    """How far it has come."""

    id: UUID
    verb: str
    state: str = Field(description="running, paused (by itself, see note), stopped (by a person) or done")
    note: str
    total: int
    done: int
    skipped: int
    failed: int
    remaining: int
    filter: dict[str, Any] | None
    reason: str
    actor: str
    created_at: datetime
    finished_at: datetime | None


class BulkItem(_Shape):
    """What became of one of the set."""

    position: int
    id: str
    run_id: UUID | None
    state: str = Field(description="pending, done, skipped or failed")
    detail: str = Field(description="Why it was skipped, how it failed.")
    outcome: str | None = Field(description="What came of its run: ended or failed_again; null while not known.")
    at: datetime | None


class BulkReport(BulkOperation):
    """The same with a page of the set."""

    items: list[BulkItem]
    next_cursor: str | None
