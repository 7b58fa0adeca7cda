"""One live run for a subject, or of a workflow: a second submit is refused, or waits its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from orchestrator.core.errors import Conflict
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.edit import Opening
from orchestrator.engine.plans import Plan

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))::text AS locked"


class Refused(Conflict):
    """Another live run excludes this one. ``holder`` is its id; no run was made."""

    def __init__(self, opening: Opening, holder: UUID) -> None:
        by = opening.plan.spec.exclusive
        what = f"subject {opening.subject_id!r}" if by and by.by == "subject" else "it at all"
        super().__init__(
            f"workflow {opening.plan.workflow} allows one live run for {what}; run {holder} is live", field="subject_id"
        )
        self.holder = holder
        self.opening = opening


def key_of(plan: Plan, subject_id: str) -> str | None:
    """What the run excludes others by; None where it does not."""
    by = plan.spec.exclusive
    if by is None:
        return None
    return f"{plan.workflow}\x1f{subject_id}"[:1000] if by.by == "subject" else plan.workflow


def take_turns(conn: Connection, openings: list[Opening]) -> list[Opening]:
    """Marks the openings that have to wait for another live run.

    Takes a lock of the transaction on each key, in order, so that of two submits at once the second sees the first. A
    repeated idempotency key is looked at before: it starts nothing.

    Raises:
        Refused: another run is live and the definition does not let a second one wait.
    """
    keys = sorted({o.exclusive_key for o in openings if o.exclusive_key})
    for name in keys:
        rows(conn, _LOCK, [f"switchyard exclusive {name}"])
    holders = _holders(conn, keys)
    result = []
    for opening in openings:
        key = opening.exclusive_key
        if key and key in holders and not _is_repeat(conn, opening):
            by = opening.plan.spec.exclusive
            if by is None or by.then != "wait":
                raise Refused(opening, holders[key])
            opening = replace(opening, held=True, edit=None)
        elif key:
            holders.setdefault(key, opening.id)
        result.append(opening)
    return result


def exclude_again(conn: Connection, run: Any, plan: Plan) -> str | None:
    """The key of a run that is to be retried, if no other run has become live with it meanwhile.

    Raises:
        Conflict: another run is live.
    """
    key = key_of(plan, run.subject_id)
    if key is not None:
        rows(conn, _LOCK, [f"switchyard exclusive {key}"])
        holder = _holders(conn, [key]).get(key)
        if holder is not None and holder != run.id:
            raise Conflict(f"run {holder} is live, and workflow {plan.workflow} allows one; retry when it has ended")
    return key


def _holders(conn: Connection, keys: list[str]) -> dict[str, Any]:
    query = """
        SELECT DISTINCT ON (exclusive_key) exclusive_key, id FROM workflow_runs
        WHERE exclusive_key = ANY(%s) ORDER BY exclusive_key, id"""
    return {row.exclusive_key: row.id for row in rows(conn, query, [keys])}


def _is_repeat(conn: Connection, opening: Opening) -> bool:
    query = "SELECT 1 FROM workflow_runs WHERE workflow = %s AND idempotency_key = %s"
    return opening.key is not None and bool(rows(conn, query, [opening.plan.workflow, opening.key]))
