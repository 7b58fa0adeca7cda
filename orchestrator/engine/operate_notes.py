"""What people change about a run without touching its steps: more time, a note."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from uuid import UUID

from orchestrator.core.actor import Actor, require
from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import Conflict, Invalid
from orchestrator.core.states import RunState
from orchestrator.core.text import clean
from orchestrator.engine import history, transitions
from orchestrator.engine.db import caller_transaction, rows
from orchestrator.engine.edit import Audit
from orchestrator.engine.operate_runs import lock_run

_LONGEST = timedelta(days=3650)


def extend_run(run_id: UUID | str, deadline: str, actor: Actor, reason: str) -> None:
    """Moves the deadline of a running run: a duration from now such as ``"2h"``, or a time in ISO 8601.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below operator, no reason, or no time that lies ahead.
        Conflict: the run has ended or is stopping.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        until = _time(deadline, rows(conn, "SELECT clock_timestamp() AS now")[0].now)
        row, _ = lock_run(conn, run_id)
        if row.state != RunState.RUNNING or row.stop or row.deadline_at is None:
            doing = "not started yet" if row.deadline_at is None and not row.stop else row.state
            raise Conflict(f"run {row.id} is {doing}; only a running run can be given more time")
        transitions.extend_deadline(conn, row.id, until)
        before = json.dumps({"deadline_at": row.deadline_at.isoformat()})
        after = json.dumps({"deadline_at": until.isoformat()})
        record = Audit("extend", before, after, actor.name, actor.role, reason.strip())
        history.insert_audit(conn, [(row.id, record)])


def _time(text: str, now: datetime) -> datetime:
    try:
        until = now + timedelta(seconds=parse_duration(text))
    except BadDuration:
        try:
            until = datetime.fromisoformat(text)
        except ValueError:
            raise Invalid(
                f"{text!r} is neither a duration such as 2h nor a time such as 2030-01-31T12:00:00Z", field="deadline"
            ) from None
    except OverflowError:
        raise Invalid("the deadline is too far ahead", field="deadline") from None
    if until.tzinfo is None:
        raise Invalid("the deadline needs a time zone, such as Z for UTC", field="deadline")
    if not now < until <= now + _LONGEST:
        raise Invalid("the deadline must lie ahead, ten years at most", field="deadline")
    return until


def add_note(run_id: UUID | str, text: str, actor: Actor) -> None:
    """Adds a note to a run's history.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below support, an empty note.
    """
    require(actor, "support", text)
    with caller_transaction() as conn:
        row, _ = lock_run(conn, run_id)
        record = Audit("note", None, None, actor.name, actor.role, clean(text.strip(), 5000))
        history.insert_audit(conn, [(row.id, record)])
