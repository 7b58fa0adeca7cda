"""Mending what was found, and keeping the last result where pages and the dispatcher can show it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from orchestrator.core.actor import Actor, require
from orchestrator.engine.db import Connection, put, rows
from orchestrator.engine.doctor import Examination
from orchestrator.engine.doctor.look import Broken, Repair

log = logging.getLogger("switchyard.doctor")
#: Row of ``workflow_beats`` that holds the last result.
BEAT = "doctor"
_KEPT = 20
#: A repair may bring the next thing to light (a run that goes on again, say), but not without end.
_ROUNDS = 25


@dataclass(frozen=True)
class Repaired:
    """One thing that was mended, and what was done."""

    broken: Broken
    did: str

    def as_json(self) -> dict[str, str]:
        """``{invariant, id, detail, did}``."""
        return {**self.broken.as_json(), "did": self.did}


def repair(conn: Connection, look: Callable[[], Examination], actor: Actor) -> tuple[Examination, list[Repaired]]:
    """Mends what can be mended and looks again until nothing more can; the last look, and what was done.

    Raises:
        NotAllowed: the actor is not an admin.
    """
    require(actor, "admin")
    done: list[Repaired] = []
    found = look()
    for _ in range(_ROUNDS):
        mended = _mend_all(conn, found.broken, actor)
        if not mended:
            break
        done += mended
        found = look()
    return found, done


def _mend_all(conn: Connection, broken: list[Broken], actor: Actor) -> list[Repaired]:
    """Some repairs (a sweep, say) mend all items of their kind at once: each of those is done once."""
    answers: dict[Repair, str | None] = {}
    for item in broken:
        if item.repair is not None and item.repair not in answers:
            answers[item.repair] = _mend(conn, item, actor)
    return [Repaired(item, did) for item in broken if item.repair and (did := answers[item.repair])]


def _mend(conn: Connection, broken: Broken, actor: Actor) -> str | None:
    """One bad repair does not stop the others; a broken connection does."""
    if broken.repair is None:
        return None
    try:
        return broken.repair(conn, actor)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise
    except Exception:
        log.exception("%s of %s could not be mended", broken.invariant, broken.id or "the system")
        return None


_KEEP = """
INSERT INTO workflow_beats (name, holder, beat_at, expires_at, detail)
VALUES (%(name)s, %(holder)s, now(), now(), %(detail)s::jsonb || jsonb_build_object('at', now()))
ON CONFLICT (name) DO UPDATE
SET holder = excluded.holder, beat_at = excluded.beat_at, expires_at = excluded.expires_at, detail = excluded.detail
"""


def keep(conn: Connection, found: Examination, holder: str) -> None:
    """Keeps the result: ``{at, ok, broken, items, warnings, checked, unchecked}``, at most 20 items.

    Items of invariants that were not looked at this time stay from the time before.
    """
    items = [*(b.as_json() for b in found.broken), *(i for i in _before(conn) if i["invariant"] not in found.checked)]
    detail = {
        "ok": not items,
        "broken": len(items),
        "items": items[:_KEPT],
        "warnings": found.warnings,
        "checked": found.checked,
        "unchecked": found.unchecked,
    }
    put(conn, _KEEP, {"name": BEAT, "holder": holder, "detail": json.dumps(detail)})


def _before(conn: Connection) -> list[dict[str, Any]]:
    kept = rows(conn, "SELECT detail->>'items' AS items FROM workflow_beats WHERE name = %s", [BEAT])
    return json.loads(kept[0].items or "[]") if kept else []
