"""Closing attempts: the one function through which every attempt ends, whatever ended it.

Success, exception, timeout, kill, cancel and lost worker all arrive here as :class:`~transitions.Closure` and go the
same way, in one transaction: lock the runs, close what is still theirs to close, decide what follows, write it. A
closure that no longer matches (somebody was first) changes nothing but a counter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.core import metric_names
from orchestrator.core.states import RUN_TERMINAL, Kind, StepState, StopReason
from orchestrator.engine import advance, closing, gates, history, transitions, unwind
from orchestrator.engine.db import Connection, in_transaction, relax_commit, sync_commit
from orchestrator.engine.edit import Audit, NewStep, RunEdit, Take
from orchestrator.engine.history import Counters
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import load_plan
from orchestrator.engine.transitions import Closure, Holder, Ticket

log = logging.getLogger("switchyard.engine")


@dataclass
class Settled:
    """What a :func:`close_attempts` came to.

    ``changed`` rows were closed and ``late`` closures ignored; ``made`` are rows opened and already running in the
    caller, as (edit, new row, its id and token), ``claimed`` rows of sql/claim_steps that the caller now holds too.
    """

    changed: int = 0
    late: int = 0
    made: list[tuple[RunEdit, NewStep, Any]] = field(default_factory=list)
    claimed: list[Any] = field(default_factory=list)


@dataclass
class _Sent:
    """Statements sent in a pipeline whose rows are fetched once it has been flushed."""

    changed: int
    late: int
    made: transitions.Made
    claim: Any


def close_attempts(
    conn: Connection,
    closures: Sequence[Closure],
    *,
    holder: Holder | None = None,
    take: Take = advance.take_nothing,
    more: Sequence[Ticket] = (),
    counters: Counters | None = None,
) -> Settled:
    """Closes attempts of any runs and takes their runs as far as they can go.

    A worker passes itself as ``holder`` and goes on with what ``take`` accepts of the steps that become ready
    (``Settled.made``) and with rows of ``more`` tickets (``Settled.claimed``), both already claimed when this commits.
    Deadlocks and serialisation failures are tried again inside. ``counters`` are added to the metrics and emptied.
    """
    counts: Counters = counters if counters is not None else {}
    with conn.pipeline():
        sent = in_transaction(conn, lambda: _close(conn, closures, holder, take, more, dict(counts)))
    counts.clear()
    made = [m for m in sent.made if m[1].state is StepState.RUNNING]
    return Settled(sent.changed, sent.late, made, sent.claim.fetchall() if sent.claim else [])


def _close(
    conn: Connection,
    closures: Sequence[Closure],
    holder: Holder | None,
    take: Take,
    more: Sequence[Ticket],
    counts: Counters,
) -> _Sent:
    relax_commit(conn)
    edits: dict[UUID, RunEdit] = {}
    changed: list[Any] = []
    if closures:
        locked, changed = transitions.settle(conn, closures)
        edits = {r.id: RunEdit.of(r, load_plan(conn, r.definition_id)) for r in locked}
        _apply(conn, edits, changed, closures, counts)
        read = reader(conn)
        for edit in edits.values():
            if edit.stop is StopReason.DEADLINE:
                note_missed_deadline(conn, edit, counts)
            unwind.resolve(conn, edit, read, take)
            _ticket_released(edit, more)
    touched = [e for e in edits.values() if e.touched]
    if any(edit.state in RUN_TERMINAL for edit in touched):
        sync_commit(conn)
    made = transitions.write(conn, touched, holder, counts)
    gates.wake(conn, changed)
    claim = transitions.send_claim(conn, more, holder) if more and holder else None
    return _Sent(len(changed), len(closures) - len(changed), made, claim)


def _ticket_released(edit: RunEdit, more: Sequence[Ticket]) -> None:
    """Shards that the window lets out need a ticket, unless the caller goes on with one of theirs."""
    going_on = {ticket.step for ticket in more if ticket.run_id == edit.id}
    for step, count in edit.released.items():
        if step not in going_on and step not in edit.tickets:
            edit.ticket(step, edit.plan.by_id[step].spec.queue, min(count, advance.MAX_TICKETS))


def note_missed_deadline(conn: Connection, edit: RunEdit, counts: Counters) -> bool:
    """Notes, once, that a run is past its deadline, whether a handler or the dispatcher saw it first."""
    if not transitions.note_missed_deadline(conn, edit.id):
        return False
    history.count(counts, metric_names.RUNS_MISSED_DEADLINE, {"workflow": edit.row.workflow})
    after = json.dumps({"deadline_at": edit.row.deadline_at.isoformat(), "on_deadline": edit.row.on_deadline})
    edit.audits.append(Audit("deadline", None, after))
    return True


def _apply(
    conn: Connection, edits: dict[UUID, RunEdit], changed: list[Any], closures: Sequence[Closure], counts: Counters
) -> None:
    """Brings what was really closed into the edits, and writes the history of what did not succeed."""
    by_id = {c.step_id: c for c in closures}
    failed, dead = [], []
    # What failed comes first, so that the run says why, and not that a join of the same batch is not met.
    for row in sorted(changed, key=lambda r: (r.state != StepState.FAILED, r.id)):
        edit, closure = edits[row.run_id], by_id[row.id]
        joins = row.state == StepState.WAITING and closure.delay is None
        outcome = "done" if row.state == StepState.DONE or joins else str(row.cause or row.state)
        labels = {"workflow": edit.row.workflow, "step": row.step, "outcome": outcome}
        history.count(counts, metric_names.STEP_ATTEMPTS, labels)
        if row.state not in (StepState.DONE, StepState.SKIPPED) and not joins:
            failed.append((row, closure))
        if row.state == StepState.FAILED:
            dead.append((edit.row, row.id, row.step, row.shard, row.cause, closure.error, row.attempt))
        if row.state == StepState.WAITING:
            edit.waited = True
        elif row.kind == Kind.COMPENSATION:
            edit.undone.append(row)
        else:
            if not row.shard:
                edit.outputs[row.step] = (closure.output, closure.output_ref)
            closing.close_node(edit, row)
    history.insert_attempts(conn, failed)
    if dead:
        history.insert_dead_letters(conn, dead)
    _count_late(closures, changed, counts)


def _count_late(closures: Sequence[Closure], changed: list[Any], counts: Counters) -> None:
    if len(closures) > len(changed):
        done = {row.id for row in changed}
        late = [c.step_id for c in closures if c.step_id not in done]
        log.warning("completion ignored, already closed by somebody else: step rows %s", late)
        history.count(counts, metric_names.DUPLICATE_COMPLETIONS, {}, len(late))
