"""The life of a run: it ends, nothing of it stays open when it has, and something can move until then."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from orchestrator.core.actor import Actor
from orchestrator.core.lifecycle import RUN_MOVES
from orchestrator.core.states import NODE_SATISFIED, RUN_TERMINAL, Cause, NodeState, RunState, StopReason
from orchestrator.engine import recover
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.doctor.look import Broken, Scope, ago, find
from orchestrator.engine.doctor.mend import mend_run, note, on_run
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import load_plan
from orchestrator.engine.unwind import resolve

_ENDED = """
WITH {scope}, counted AS (
    SELECT s.run_id, count(*) AS n, count(*) FILTER (WHERE s.state = 'running') AS running
    FROM scope r JOIN workflow_steps s ON s.run_id = r.id
    WHERE r.state = ANY(%(terminal)s) AND s.state = ANY(%(open)s)
    GROUP BY s.run_id
)
SELECT r.id, r.state, coalesce(c.n, 0) AS n, coalesce(c.running, 0) AS running, r.finished_at, r.exclusive_key,
       r.state = ANY(%(terminal)s) AS over
FROM scope r LEFT JOIN counted c ON c.run_id = r.id
WHERE CASE WHEN r.state = ANY(%(terminal)s)
           THEN c.n > 0 OR r.finished_at IS NULL OR r.exclusive_key IS NOT NULL
           ELSE r.finished_at IS NOT NULL END
LIMIT %(limit)s
"""


def ended(conn: Connection, scope: Scope) -> list[Broken]:
    """A run that has ended has no open rows, says when it ended and excludes nobody; a live one has no end."""
    return [
        Broken("ended", str(row.id), f"run {row.state}: {_ended_detail(row)}", partial(mend_run, run_id=row.id))
        for row in find(conn, scope, _ENDED)
    ]


def _ended_detail(row: Any) -> str:
    if not row.over:
        return "not ended, but has a time of ending"
    found = [f"{row.n} rows are still open, {row.running} of them running"] if row.n else []
    found += ["no time of ending"] if row.finished_at is None else []
    found += ["still excludes other runs"] if row.exclusive_key else []
    return "; ".join(found)


# What has not begun waits for its time or for other runs (see ``clocks.due``), and a held undo has its time; anything
# else alive must have a row that can move.
_DEAD_END = """
WITH {scope}
SELECT r.id, r.state, r.stop FROM scope r
WHERE r.state = ANY(%(live)s)
  AND NOT (r.state = 'running' AND r.started_at IS NULL AND r.stop IS NULL)
  AND NOT (r.state = 'compensating' AND r.compensation = 'pending' AND r.hold_until IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM workflow_steps s
                  WHERE s.run_id = r.id AND s.state IN ('queued', 'running', 'waiting'))
LIMIT %(limit)s
"""
_REACHED = """
WITH {scope}
SELECT r.definition_id, r.node_states, r.retries > 0 AS retried, (array_agg(r.id ORDER BY r.id))[1:%(limit)s] AS ids
FROM scope r
WHERE r.state = 'running' AND r.stop IS NULL AND r.started_at IS NOT NULL AND r.node_states LIKE '%%p%%'
GROUP BY 1, 2, 3
"""


def dead_end(conn: Connection, scope: Scope) -> list[Broken]:
    """A live run has a row that is queued, runs or waits, or a due time; and no step is left whose turn it is."""
    found = find(conn, scope, _DEAD_END)
    items = [
        Broken(
            "dead_end", str(row.id), f"run {row.state}, but nothing of it can move", partial(mend_run, run_id=row.id)
        )
        for row in found
    ]
    stuck = {row.id for row in found}
    for row in find(conn, scope, _REACHED):
        missed = _missed(conn, row)
        items += [
            Broken("dead_end", str(run), f"step {missed} is ready and was not opened", partial(mend_run, run_id=run))
            for run in row.ids
            if missed and run not in stuck
        ]
    return items


def _missed(conn: Connection, row: Any) -> str | None:
    """The first step that was not reached although all it comes after has ended well."""
    plan = load_plan(conn, row.definition_id)
    if len(plan.nodes) != len(row.node_states):
        return None
    for node in plan.nodes:
        if row.node_states[node.index] == NodeState.PENDING:
            before = plan.ancestors(node.index) if row.retried else node.after
            if all(_satisfied(plan.nodes[i].spec.on_error, row.node_states[i]) for i in before):
                return node.id
    return None


def _satisfied(on_error: str, letter: str) -> bool:
    return letter in NODE_SATISFIED and (letter != NodeState.FAILED or on_error != "fail")


_DEADLINE = """
WITH {scope}
SELECT r.id, r.on_deadline, r.stop, extract(epoch FROM now() - r.deadline_at)::float8 AS over FROM scope r
WHERE r.state = 'running' AND r.deadline_at < now() - %(late)s * interval '1 second'
  AND CASE WHEN r.on_deadline <> 'fail' THEN r.deadline_missed_at IS NULL
           WHEN r.stop IS NULL THEN true
           ELSE greatest(r.deadline_at, r.stopped_at) < now() - %(stopping)s * interval '1 second' END
ORDER BY r.deadline_at LIMIT %(limit)s
"""


def deadline(conn: Connection, scope: Scope) -> list[Broken]:
    """No run is running later than its deadline and two sweeps; one that is being stopped has the grace besides."""
    conf = settings.ORCHESTRATOR
    stopping = scope.params["late"] + conf.cancel_grace_seconds + conf.lease_seconds
    return [
        Broken("deadline", str(row.id), _deadline_detail(row), partial(_enforce, run_id=row.id))
        for row in find(conn, scope, _DEADLINE, stopping=stopping)
    ]


def _deadline_detail(row: Any) -> str:
    doing = f"is stopping ({row.stop}) and has attempts that do not end" if row.stop else "goes on"
    return f"{ago(row.over)} past its deadline, and it {doing}"


_STOPPED = """
SELECT state, stop, deadline_missed_at IS NOT NULL AS noted,
       (SELECT count(*) FROM workflow_steps s WHERE s.run_id = r.id AND s.state = 'running') AS running
FROM workflow_runs r WHERE r.id = %s
"""


def _enforce(conn: Connection, actor: Actor, run_id: UUID) -> str | None:
    """The sweep's own way first; a run that it has noted and not stopped is stopped here."""

    def stop(edit: RunEdit) -> bool:
        if edit.row.state != RunState.RUNNING or edit.row.stop or edit.row.on_deadline != "fail":
            return False
        edit.halt(StopReason.DEADLINE, Cause.DEADLINE)
        resolve(conn, edit, reader(conn))
        return True

    before = rows(conn, _STOPPED, [run_id])[0]
    recover.enforce_deadlines(conn)
    recover.reap_lost(conn)
    done = on_run(conn, actor, run_id, stop)
    after = rows(conn, _STOPPED, [run_id])[0]
    if done or before == after:
        return done
    note(conn, actor, "", before._asdict(), after._asdict(), run_id)
    return f"stopped: {after.state}, attempts still running: {after.running}"


# Records of one run are written under its lock, so their ids are in the order of what happened.
_HISTORY = """
WITH {scope}, moves AS (
    SELECT a.run_id, a.action, a.after->>'state' AS went,
           coalesce(lag(a.after->>'state') OVER w, 'running') AS was, lead(a.id) OVER w IS NULL AS last
    FROM scope r JOIN workflow_audit a ON a.run_id = r.id
    WHERE a.action IN ('state', 'retry', 'replay')
    WINDOW w AS (PARTITION BY a.run_id ORDER BY a.id)
)
SELECT r.id, r.state, coalesce(m.was, 'running') AS was, m.went, m.action, coalesce(m.last, true) AS last
FROM scope r LEFT JOIN moves m ON m.run_id = r.id
WHERE (m.run_id IS NULL AND r.state <> 'running')
   OR m.was || '>' || m.went <> ALL(%(legal)s)
   OR (m.action = 'state' AND (m.was = ANY(%(terminal)s) OR m.went = 'running'))
   OR (m.last AND m.went <> r.state)
LIMIT %(limit)s
"""
#: The undo of a held run begins with a record of its own.
_LEGAL = [*(f"{old}>{new}" for old, moves in RUN_MOVES.items() for new in moves), "compensating>compensating"]


def history(conn: Connection, scope: Scope) -> list[Broken]:
    """A run's recorded states are a legal path that ends where the run is; only an operator's action leaves an end."""
    return [Broken("history", str(row.id), _history_detail(row)) for row in find(conn, scope, _HISTORY, legal=_LEGAL)]


def _history_detail(row: Any) -> str:
    if row.went is None:
        return f"run {row.state}, and no record says how it came to that"
    by_itself = row.action == "state" and (row.was in RUN_TERMINAL or row.went == RunState.RUNNING)
    if by_itself or f"{row.was}>{row.went}" not in _LEGAL:
        return f"went from {row.was} to {row.went} by {row.action}, which is not a legal move"
    return f"the records end in {row.went}, the run is {row.state}"
