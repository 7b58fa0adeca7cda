"""Pauses: a queue on which nothing runs, or a workflow whose steps do not start, until a time or until resumed.

What runs when a pause begins may finish. A paused queue starts nothing at all, undos neither; a paused workflow starts
no step on any queue, and still undoes. Clocks go on: timers fire, deadlines pass. What becomes ready is queued, spends
no attempt and has no ticket; the dispatcher issues tickets when the pause has ended.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from orchestrator.core.actor import Actor, require
from orchestrator.core.durations import format_duration
from orchestrator.core.errors import Conflict, Invalid, NotFound
from orchestrator.core.mask import mask_text
from orchestrator.core.text import clean
from orchestrator.engine import audit
from orchestrator.engine.db import Connection, caller_connection, notify, rows
from orchestrator.models import Definition, Lease, Pause, Step

KINDS = ("workflow", "queue")
#: A pause ends by itself after this long unless it says otherwise, so that none is forgotten.
DEFAULT = 3600.0
LONGEST = 366 * 86400.0
#: Workers look at the pauses this often at most, in seconds; one that has ended is lifted when all of them know.
FRESH = 1.0
_NAME = re.compile(r"[^\s\x00-\x1f]{1,200}")


@dataclass(frozen=True)
class Paused:
    """A pause in force."""

    kind: str
    name: str
    until: datetime
    reason: str
    actor: str


#: The same as :func:`live` as one JSON value, for a statement that asks for other things too; see :func:`from_json`.
AS_JSON = """(
  SELECT coalesce(json_agg(json_build_array(kind, name, until, reason, actor) ORDER BY until, kind, name), '[]')
  FROM workflow_pauses WHERE until > statement_timestamp())"""


def from_json(value: Any) -> list[Paused]:
    """What :data:`AS_JSON` answered, as text or read already; secrets in reasons masked."""
    found = json.loads(value) if isinstance(value, str) else value
    return [
        Paused(kind, name, datetime.fromisoformat(until), mask_text(reason), actor)
        for kind, name, until, reason, actor in found
    ]


def live() -> list[Paused]:
    """The pauses in force, those that end first before the others; secrets in their reasons masked."""
    found = Pause.objects.filter(until__gt=Now()).order_by("until", "kind", "name")
    return [Paused(p.kind, p.name, p.until, mask_text(p.reason), p.actor) for p in found]


def pause(kind: str, name: str, seconds: float | None, actor: Actor, reason: str) -> Paused:
    """Pauses a workflow or queue for so many seconds from now (None: an hour), in place of a pause it has.

    Raises:
        NotAllowed: the actor's role is below operator.
        Invalid: no reason, an unknown kind, or a time of under a second or over a year.
        NotFound: no workflow of that name is published, or nothing knows such a queue.
    """
    require(actor, "operator", reason)
    _known(kind, name)
    seconds = DEFAULT if seconds is None else seconds
    if not 1 <= seconds <= LONGEST:
        raise Invalid(f"a pause takes from 1 s to {format_duration(LONGEST)}, not {seconds:g} s", field="for")
    with transaction.atomic():
        before = Pause.objects.select_for_update().filter(kind=kind, name=name, until__gt=Now()).first()
        query = """
            INSERT INTO workflow_pauses (kind, name, reason, actor, created_at, until)
            VALUES (%s, %s, %s, %s, clock_timestamp(), clock_timestamp() + %s * interval '1 second')
            ON CONFLICT (kind, name) DO UPDATE
            SET reason = excluded.reason, actor = excluded.actor, until = excluded.until,
                created_at = excluded.created_at
            RETURNING until"""
        reason = clean(reason)
        made = rows(caller_connection(), query, [kind, name, reason, actor.name, seconds])[0]
        after = {"paused": True, "until": made.until.isoformat()}
        audit.note(f"{kind} {name}", "pause", actor, reason, before=_told(before), after=after)
    return Paused(kind, name, made.until, reason, actor.name)


def resume(kind: str, name: str, actor: Actor, reason: str = "") -> None:
    """Ends a pause; what it held back goes on within two seconds.

    Raises:
        NotAllowed: the actor's role is below operator.
        Invalid: an unknown kind.
        Conflict: it is not paused.
    """
    require(actor, "operator")
    _check_kind(kind)
    with transaction.atomic():
        row = Pause.objects.select_for_update().filter(kind=kind, name=name, until__gt=Now()).first()
        if row is None:
            raise Conflict(f"the {kind} {name} is not paused")
        # The row stays, ended, until the dispatcher has issued the tickets (transport.reissue).
        conn = caller_connection()
        rows(conn, "UPDATE workflow_pauses SET until = clock_timestamp() WHERE id = %s RETURNING id", [row.pk])
        audit.note(f"{kind} {name}", "resume", actor, reason, before=_told(row), after={"paused": False})
        notify(conn)


def _told(row: Pause | None) -> dict[str, Any]:
    return {"paused": True, "until": row.until.isoformat(), "by": row.actor} if row else {"paused": False}


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise Invalid(f"{kind!r} cannot be paused; it is one of {', '.join(KINDS)}", field="kind")


def _known(kind: str, name: str) -> None:
    """A name that nothing knows is most likely a slip, and pausing it would quietly do nothing."""
    _check_kind(kind)
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} is not the name of a {kind}", field="name")
    if kind == "workflow":
        if not Definition.objects.filter(workflow=name).exists():
            raise NotFound(f"no workflow {name!r} is published", field="name")
    elif not (
        name in settings.ORCHESTRATOR.queues
        or Lease.objects.filter(queues__contains=[name], ended_at=None).exists()
        or Step.objects.filter(queue=name, state="queued").exists()
        or name in _defined_queues()
    ):
        raise NotFound(
            f"there is no queue {name!r}: it is not configured, no worker serves it and no definition names it",
            field="name",
        )


def _defined_queues() -> set[str]:
    """Queues of the newest version of each workflow."""
    newest = Definition.objects.order_by("workflow", "-version").distinct("workflow").values_list("spec", flat=True)
    used = [part for spec in newest for part in [*spec.get("steps", []), *_undos(spec)]]
    return {part["queue"] for part in used if part.get("queue")}


def _undos(spec: dict[str, Any]) -> list[dict[str, Any]]:
    own = [step["compensate"] for step in spec.get("steps", []) if step.get("compensate")]
    return own + list((spec.get("on_failure") or {}).get("compensate") or [])


class Watch:
    """What one worker process knows of the pauses: looked up when it is asked for, and at most once a second."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], float] = {}
        self._looked_at = -FRESH

    def refresh(self, conn: Connection) -> None:
        """Looks again if the last look is a second old."""
        now = time.monotonic()
        if now - self._looked_at < FRESH:
            return
        query = """
            SELECT kind, name, extract(epoch FROM until - clock_timestamp())::float8 AS seconds
            FROM workflow_pauses WHERE until > clock_timestamp()"""
        self._ends = {(row.kind, row.name): now + row.seconds for row in rows(conn, query)}
        self._looked_at = now

    def __bool__(self) -> bool:
        return bool(self._ends)

    def holds(self, workflow: str, queue: str, *, undo: bool = False) -> bool:
        """Whether a step of this workflow on this queue (or with ``undo`` a compensation) may not start now."""
        return bool(self._ends) and (
            self._in_force("queue", queue) or (not undo and self._in_force("workflow", workflow))
        )

    def _in_force(self, kind: str, name: str) -> bool:
        return self._ends.get((kind, name), 0.0) > time.monotonic()
