"""What people change about a run without touching its steps: more time, a note."""

from __future__ import annotations

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
from orchestrator.engine.unwind import is_held

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
        before, after = {"deadline_at": row.deadline_at.isoformat()}, {"deadline_at": until.isoformat()}
        record = Audit.of(actor, "extend", reason, before, after)
        history.insert_audit(conn, [(row.id, record)])


def hold_run(run_id: UUID | str, until: str, actor: Actor, reason: str) -> None:
    """Gives operators more time before a held run undoes: a duration from now such as ``"2h"``, or a time in ISO 8601.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below operator, no reason, or no time that lies ahead.
        Conflict: the run does not wait for an operator before its undo.
    """
    require(actor, "operator", reason)
    with caller_transaction() as conn:
        moment = _time(until, rows(conn, "SELECT clock_timestamp() AS now")[0].now, "until")
        row, _ = lock_run(conn, run_id)
        if not is_held(row):
            raise Conflict(f"run {row.id} is {row.state} and not held; only a held run can be held longer")
        was = rows(conn, "SELECT hold_until FROM workflow_runs WHERE id = %s", [row.id])[0].hold_until
        transitions.extend_hold(conn, row.id, moment)
        before, after = {"hold_until": was.isoformat() if was else None}, {"hold_until": moment.isoformat()}
        history.insert_audit(conn, [(row.id, Audit.of(actor, "hold", reason, before, after))])


#: How long a link for a customer may be good for, in seconds.
LONGEST_LINK = 90 * 86400.0


def share_run(run_id: UUID | str, seconds: float, actor: Actor, reason: str) -> datetime:
    """Records that somebody hands out a link on which a customer sees the run's reply; until when it is good.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below support, no reason, or no length up to 90 days.
    """
    require(actor, "support", reason)
    if not 60 <= seconds <= LONGEST_LINK:
        raise Invalid("a link is good for a minute at least and 90 days at most", field="for")
    with caller_transaction() as conn:
        row, _ = lock_run(conn, run_id)
        now: datetime = rows(conn, "SELECT clock_timestamp() AS now")[0].now
        until = now + timedelta(seconds=seconds)
        after = {"until": until.isoformat(timespec="seconds")}
        history.insert_audit(conn, [(row.id, Audit.of(actor, "share", reason, after=after))])
    return until


def _time(text: str, now: datetime, field: str = "deadline") -> datetime:
    what = "deadline" if field == "deadline" else "time"
    try:
        until = now + timedelta(seconds=parse_duration(text))
    except BadDuration:
        try:
            until = datetime.fromisoformat(text)
        except ValueError:
            raise Invalid(
                f"{text!r} is neither a duration such as 2h nor a time such as 2030-01-31T12:00:00Z", field=field
            ) from None
    except OverflowError:
        raise Invalid(f"the {what} is too far ahead", field=field) from None
    if until.tzinfo is None:
        raise Invalid(f"the {what} needs a time zone, such as Z for UTC", field=field)
    if not now < until <= now + _LONGEST:
        raise Invalid(f"the {what} must lie ahead, ten years at most", field=field)
    return until


def add_note(run_id: UUID | str, text: str, actor: Actor) -> None:
    """Adds a note to a run's history.

    Raises:
        NotFound, NotAllowed, Invalid: no such run, role below support, an empty note.
    """
    require(actor, "support", text)
    with caller_transaction() as conn:
        row, _ = lock_run(conn, run_id)
        record = Audit.of(actor, "note", clean(text.strip(), 5000))
        history.insert_audit(conn, [(row.id, record)])
