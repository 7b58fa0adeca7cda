"""Taking a version out of use: no new runs start on it. Refused while runs live on it, or another workflow needs it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count, Max, Min
from django.db.models.functions import Now

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.states import RUN_LIVE
from orchestrator.definitions.publish import keep_schedule
from orchestrator.engine import audit
from orchestrator.engine.explain_words import listed, number
from orchestrator.models import Definition, Run

_LIVE = sorted(RUN_LIVE)
# Workflows whose versions in use start child runs of this one.
_PARENTS = """
SELECT DISTINCT d.workflow FROM workflow_definitions d, jsonb_array_elements(d.spec->'steps') AS step
WHERE step->>'workflow' = %(name)s AND d.workflow <> %(name)s AND (d.retired_at IS NULL OR EXISTS (
    SELECT 1 FROM workflow_runs r WHERE r.definition_id = d.id AND NOT (r.state IN ('cancelled', 'done', 'failed'))))
ORDER BY 1 LIMIT 3"""


@dataclass(frozen=True)
class Drain:
    """What holds a version: live runs in all, by the step at which they stand, and when the last is due to be over."""

    runs: int
    by_step: list[tuple[str, int]]
    oldest: datetime | None
    last_deadline: datetime | None


def drain(workflow: str, version: int) -> Drain:
    """Which live runs hold a version; all zero where none does. One query."""
    live = Run.objects.filter(workflow=workflow, version=version, state__in=_LIVE).order_by()
    steps = live.values_list("current_step").annotate(
        n=Count("pk"), first=Min("submitted_at"), last=Max("deadline_at")
    )  # fmt: skip
    found = list(steps.order_by("-n", "current_step"))
    return Drain(
        sum(n for _, n, _, _ in found),
        [(step or "not started", n) for step, n, _, _ in found[:20]],
        min((first for _, _, first, _ in found), default=None),
        max((last for _, _, _, last in found if last), default=None),
    )


def retire_version(workflow: str, version: int, actor: Actor, reason: str) -> None:
    """From now on no new runs start on this version; its runs that have ended keep their record.

    Raises:
        NotAllowed, Invalid: the actor is no admin; no reason.
        NotFound: no such version.
        Conflict: live runs are on it, it is retired already, or it is the last one and others start it as a child.
    """
    require(actor, "admin", reason)
    with transaction.atomic():
        row = _lock(workflow, version)
        if row.retired_at:
            raise Conflict(f"{row} is retired already")
        holders: list[UUID] = list(_live_on(row).values_list("pk", flat=True)[:1])
        if holders:
            count = number(_live_on(row).count(), "live run")
            raise Conflict(f"{row} is in use by {count}, such as {holders[0]}; retire it when they have ended")
        parents = _parents(workflow) if _is_last(row) else []
        if parents:
            raise Conflict(f"{row} is the last version in use, and {listed(parents, 3)} start it as a child run")
        Definition.objects.filter(pk=row.pk).update(retired_at=Now())
        keep_schedule(workflow)
        audit.note(str(row), "retire", actor, reason, before={"retired": False}, after={"retired": True})


def restore_version(workflow: str, version: int, actor: Actor, reason: str) -> None:
    """New runs may start on a retired version again.

    Raises:
        NotAllowed, Invalid, NotFound: as :func:`retire_version`. Conflict: it is not retired.
    """
    require(actor, "admin", reason)
    with transaction.atomic():
        row = _lock(workflow, version)
        if not row.retired_at:
            raise Conflict(f"{row} is not retired")
        Definition.objects.filter(pk=row.pk).update(retired_at=None)
        keep_schedule(workflow)
        audit.note(str(row), "restore", actor, reason, before={"retired": True}, after={"retired": False})


def _lock(workflow: str, version: int) -> Definition:
    """Locked against submits too: each refers to its definition's row."""
    row = Definition.objects.select_for_update().filter(workflow=workflow, version=version).first()
    if row is None:
        raise NotFound(f"workflow {workflow!r} has no version {version}", field="version")
    return row


def _live_on(row: Definition) -> Any:
    return Run.objects.filter(definition=row, state__in=_LIVE).order_by("pk")


def _is_last(row: Definition) -> bool:
    return not Definition.objects.filter(workflow=row.workflow, retired_at=None).exclude(pk=row.pk).exists()


def _parents(workflow: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_PARENTS, {"name": workflow})
        return [name for (name,) in cursor.fetchall()]
