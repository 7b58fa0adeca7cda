"""The only writer of states: every statement that changes a run or a step is issued here.

Callers lock first (:func:`lock_runs`), decide on :class:`~orchestrator.engine.edit.RunEdit` objects, and write with
:func:`write`. All of them work on arrays, whatever number of runs is concerned, and on either kind of connection; on
an engine connection in pipeline mode a whole :func:`write` costs one round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.core.states import RUN_TERMINAL, DeadLetterState, RunState, StepState, StopReason
from orchestrator.engine import history, parameters
from orchestrator.engine.claims import Closure as Closure
from orchestrator.engine.claims import End as End
from orchestrator.engine.claims import Holder as Holder
from orchestrator.engine.claims import Ticket as Ticket
from orchestrator.engine.db import Connection, put, rows, sql
from orchestrator.engine.edit import Made as Made
from orchestrator.engine.edit import Opening, RunEdit
from orchestrator.engine.history import Counters


def lock_runs(conn: Connection, run_ids: Iterable[UUID]) -> list[Any]:
    """Locks runs by id and reads them (sql/lock_runs). Call it before anything else in the transaction."""
    return rows(conn, sql("lock_runs"), {"runs": sorted(set(run_ids))})


def settle(conn: Connection, closures: Sequence[Closure]) -> tuple[list[Any], list[Any]]:
    """Locks the runs, then takes rows out of ``running`` where (state, attempt, token) still match.

    Two statements of one transaction, sent together (one statement could not decide a join). Returns the locked runs
    and the rows really changed.
    """
    locked = put(conn, sql("lock_runs"), {"runs": sorted({c.run_id for c in closures})})
    changed = put(conn, sql("settle_steps"), parameters.of_closures(closures))
    return locked.fetchall(), changed.fetchall()


def submit_runs(
    conn: Connection, openings: Sequence[Opening], actor: str, wake: bool, *, confirm: str | None = None
) -> set[UUID]:
    """Makes runs with their first rows and tickets; the ids of those made.

    The others' idempotency keys are taken; or their definition is no longer the latest of workflow ``confirm``.
    """
    params = {**parameters.of_openings(openings, actor, wake), "confirm": confirm}
    return {row.id for row in rows(conn, sql("submit_runs"), params)}


def claim(conn: Connection, tickets: Sequence[Ticket], holder: Holder) -> list[Any]:
    """Claims queued rows for a worker process; returns what a worker needs to run them (sql/claim_steps)."""
    return send_claim(conn, tickets, holder).fetchall() if tickets else []


def send_claim(conn: Connection, tickets: Sequence[Ticket], holder: Holder) -> Any:
    """The same as part of a pipeline: the cursor's rows are fetched when it has been flushed."""
    runs, steps, limits = map(list, zip(*tickets, strict=True))
    params = {"runs": runs, "steps": steps, "limits": limits, "lease": holder.lease_id, "worker": holder.worker}
    return put(conn, sql("claim_steps"), params)


def give_back(conn: Connection, claims: Sequence[tuple[int, int, int]]) -> list[Any]:
    """Queues again what was claimed (id, attempt, token) and never begun; the attempt is not spent."""
    if not claims:
        return []
    ids, attempts, tokens = map(list, zip(*claims, strict=True))
    return rows(conn, sql("release_claims"), {"ids": ids, "attempts": attempts, "tokens": tokens})


def disown_claims(conn: Connection, row_ids: list[int], lease_id: int) -> None:
    """Leaves running rows to the sweep."""
    put(conn, sql("disown_claims"), {"rows": row_ids, "lease": lease_id})


def close_unstarted(conn: Connection, run_id: UUID, reason: StopReason) -> list[Any]:
    """Closes a stopped run's rows that are not running; counts by step."""
    return rows(conn, sql("close_unstarted"), {"run": run_id, "reason": reason})


def insert_compensations(conn: Connection, run_id: UUID, planned: list[dict[str, Any]]) -> None:
    """Makes the rows that undo, all pending (see ``unwind``)."""
    put(conn, sql("insert_compensations"), parameters.of_compensations(run_id, planned))
    # A row that is used again had its letter from the undo before; it is being tried again now.
    query = """
        UPDATE workflow_dead_letters d SET state = 'replayed', closed_at = clock_timestamp()
        FROM workflow_steps s
        WHERE s.id = d.step_row_id AND s.run_id = %s AND s.kind = 'compensation' AND s.state = 'pending'
          AND d.state = 'open'"""
    put(conn, query, [run_id])


def release_wave(conn: Connection, run_id: UUID) -> list[Any]:
    """Queues the next compensations of a run."""
    return rows(conn, sql("release_wave"), {"run": run_id})


def mark_undone(conn: Connection, run_id: UUID, ended: list[Any]) -> None:
    """Notes what the compensations that ended (rows of sql/settle_steps) undid."""
    own = [row.undoes_id for row in ended if row.undoes_id]
    steps = [step for row in ended if not row.undoes_id for step in row.undoes_steps or []]
    put(conn, sql("mark_undone"), {"run": run_id, "rows": own, "steps": steps})


def promote_waiting(conn: Connection, topics: list[str], locks: list[str]) -> list[Any]:
    """Queues what waits for these topics and locks, as far as there is room; they are locked already."""
    return rows(conn, sql("promote_waiting"), {"topics": topics, "locks": locks})


def claim_gated(conn: Connection, ids: list[int], policies: list[str], holder: Holder) -> list[Any]:
    """Claims rows that need topics and locks, which are locked already; parks or hands back what finds no room."""
    params = {"ids": ids, "policies": policies, "lease": holder.lease_id, "worker": holder.worker}
    return rows(conn, sql("claim_gated"), params)


def end_unclaimed(conn: Connection, ends: Sequence[End], was: Sequence[str], waits: str | None = None) -> list[Any]:
    """Ends rows that no worker holds and that are in one of these states; their runs are locked."""
    params = {**parameters.of_ends(ends), "was": list(was), "waits": waits}
    return rows(conn, sql("end_unclaimed"), params)


def expire_join(conn: Connection, run_id: UUID, step: str) -> list[Any]:
    """Ends what is open of a fan-out whose join goes on without it; topics and locks that this frees."""
    return rows(conn, sql("expire_join"), {"run": run_id, "step": step})


def wake_due(conn: Connection, limit: int) -> list[Any]:
    """Queues steps whose retry is due."""
    return rows(conn, sql("wake_due"), {"limit": limit})


def write(conn: Connection, edits: Sequence[RunEdit], holder: Holder | None, counters: Counters) -> Made:
    """Writes the edits of locked runs. ``counters`` gains what the metrics count, and is appended with the rest."""
    made = _insert_steps(conn, edits, holder)
    _insert_fan_outs(conn, edits)
    _release(conn, edits)
    _update_runs(conn, edits)
    _insert_outbox(conn, edits)
    history.insert_audit(conn, [(edit.id, record) for edit in edits for record in edit.audits])
    for edit in edits:
        if edit.state in RUN_TERMINAL:
            history.count_run(counters, edit)
    history.insert_alerts(conn, [(e.id, "failed", e.row.retries) for e in edits if e.state is RunState.FAILED])
    history.append_counters(conn, counters)
    if any(new.state is StepState.FAILED for _, new in made.news):
        dead = [(e.row, r.id, n.step, n.shard, n.cause, n.error, 0) for e, n, r in made if n.state is StepState.FAILED]
        history.insert_dead_letters(conn, dead)
    return made


def _insert_steps(conn: Connection, edits: Sequence[RunEdit], holder: Holder | None) -> Made:
    news = [(edit, new) for edit in edits for new in edit.new_steps]
    if not news:
        return Made([], None)
    return Made(news, put(conn, sql("insert_steps"), parameters.of_new_steps(news, holder)))


def _insert_fan_outs(conn: Connection, edits: Sequence[RunEdit]) -> None:
    small = [(edit.id, f) for edit in edits for f in edit.fan_outs if not f.bulk]
    if small:
        put(conn, sql("insert_fan_outs"), parameters.of_fan_outs(small))
    for edit in edits:
        for f in edit.fan_outs:
            if f.bulk:
                put(conn, sql("open_fan_out"), parameters.of_bulk(edit.id, f))
        for made in edit.remade:
            put(conn, sql("remake_fan_out"), parameters.of_remade(edit.id, made))
            put(conn, sql("recount_remade"), parameters.of_recount(edit.id, made))


def _release(conn: Connection, edits: Sequence[RunEdit]) -> None:
    freed = [(e.id, step, n, e.released_state(step)) for e in edits for step, n in e.released.items()]
    if freed:
        runs, steps, counts, states = map(list, zip(*freed, strict=True))
        put(conn, sql("release_shards"), {"runs": runs, "steps": steps, "counts": counts, "states": states})


def _update_runs(conn: Connection, edits: Sequence[RunEdit]) -> None:
    if edits:
        put(conn, sql("update_runs"), parameters.of_edits(edits))


def _insert_outbox(conn: Connection, edits: Sequence[RunEdit]) -> None:
    history.insert_outbox(
        conn,
        [
            (e.id, e.plan.definition_id, step, queue, n, e.is_gated(step))
            for e in edits
            for step, (queue, n) in e.tickets.items()
        ],
    )


def note_unserved(conn: Connection, run_id: UUID, step: str, note: str) -> None:
    """Notes why queued rows of a step stay queued although a worker took their ticket."""
    put(conn, sql("note_unserved"), {"run": run_id, "step": step, "note": note})


def note_children(conn: Connection, row_id: int, name: str) -> None:
    """Notes that a step that waits for children has them: it has started, and there is something to undo."""
    query = """
        UPDATE workflow_steps
        SET waiting_name = %s, first_started_at = coalesce(first_started_at, clock_timestamp())
        WHERE id = %s AND waiting_for = 'children'"""
    put(conn, query, [name, row_id])


def note_cancel(conn: Connection, run_id: UUID, force: bool) -> None:
    """Notes when a cancel was asked for; ``force``: attempts that began before now are killed without grace."""
    query = """
        UPDATE workflow_runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
               force_at = CASE WHEN %s THEN clock_timestamp() ELSE force_at END WHERE id = %s"""
    put(conn, query, [force, run_id])


def reset_steps(
    conn: Connection, run_id: UUID, reset: list[int], unmade: list[int], retries: dict[str, int]
) -> dict[str, int]:
    """For a retry: rows become pending again with a fresh budget, those never started go; pending rows by step."""
    history.close_dead_letters(conn, reset, DeadLetterState.REPLAYED, "")
    put(conn, "DELETE FROM workflow_dead_letters WHERE step_row_id = ANY(%s)", [unmade])
    put(conn, "DELETE FROM workflow_steps WHERE id = ANY(%s) AND attempt = 0", [unmade])
    params = {"rows": reset, "steps": list(retries), "retries": list(retries.values())}
    counts: dict[str, int] = {}
    for row in rows(conn, sql("reset_steps"), params):
        counts[row.step] = counts.get(row.step, 0) + 1
    put(conn, sql("recount_fan_outs"), {"run": run_id})
    return counts


def pending_rows(conn: Connection, run_id: UUID) -> dict[str, int]:
    """Rows by step that a retry made pending and that have not been reached again (or that a window holds back)."""
    query = """
        SELECT step, count(*) AS n FROM workflow_steps
        WHERE run_id = %s AND kind = 'step' AND state = 'pending' GROUP BY step"""
    return {row.step: row.n for row in rows(conn, query, [run_id])}


def reopen_run(conn: Connection, run_id: UUID, node_states: str, exclusive_key: str | None) -> Any:
    """A stopped run is running again, with a new deadline; the locked row as it is now."""
    put(conn, sql("reopen_run"), {"run": run_id, "node_states": node_states, "key": exclusive_key})
    return lock_runs(conn, [run_id])[0]


def reopen_undo(conn: Connection, run_id: UUID, row_id: int, retries: int) -> Any:
    """A failed compensation of an ended run is queued again and the run compensates; the locked run as it is now."""
    put(conn, sql("reopen_undo"), {"run": run_id, "row": row_id, "retries": retries})
    return lock_runs(conn, [run_id])[0]


def repair(conn: Connection, run_id: UUID) -> None:
    """For the doctor: what an ended run left open is closed, and the counters of fan-outs are the counts of shards."""
    put(conn, sql("repair_ended"), {"run": run_id})
    put(conn, sql("repair_fan_outs"), {"run": run_id})


def start_delayed(conn: Connection, limit: int) -> list[Any]:
    """Starts the clocks of delayed runs whose time has come; locked, for their first steps to be opened."""
    started = rows(conn, sql("start_delayed"), {"limit": limit})
    return lock_runs(conn, [row.id for row in started]) if started else []


def extend_deadline(conn: Connection, run_id: UUID, until: datetime) -> None:
    """Moves the deadline of a locked run; one that it had missed already counts no more."""
    query = """
        UPDATE workflow_runs SET deadline_at = %s, deadline_missed_at = NULL, updated_at = clock_timestamp()
        WHERE id = %s"""
    put(conn, query, [until, run_id])


def extend_hold(conn: Connection, run_id: UUID, until: datetime) -> None:
    """Moves the time at which the undo of a locked, held run begins by itself."""
    put(conn, "UPDATE workflow_runs SET hold_until = %s, updated_at = clock_timestamp() WHERE id = %s", [until, run_id])


def note_missed_deadline(conn: Connection, run_id: UUID) -> bool:
    """Notes, once, that a running run is past its deadline; False where somebody did or it no longer is."""
    query = """
        UPDATE workflow_runs SET deadline_missed_at = clock_timestamp()
        WHERE id = %s AND state = 'running' AND deadline_at < now() AND deadline_missed_at IS NULL RETURNING id"""
    return bool(rows(conn, query, [run_id]))


def clear_partial(conn: Connection, run_id: UUID) -> bool:
    """Clears the note of an incomplete undo when each dead letter of an undo was replayed or settled.

    A discarded one does not count as either, unless the undo has since been done.
    """
    query = """
        UPDATE workflow_runs SET compensation = 'done', updated_at = clock_timestamp()
        WHERE id = %(run)s AND compensation = 'partial' AND NOT EXISTS (
            SELECT 1 FROM workflow_dead_letters d JOIN workflow_steps s ON s.id = d.step_row_id
            WHERE d.run_id = %(run)s AND s.kind = 'compensation'
              AND (d.state = 'open' OR (d.state = 'discarded' AND s.state = 'failed')))
        RETURNING id"""
    return bool(rows(conn, query, {"run": run_id}))
