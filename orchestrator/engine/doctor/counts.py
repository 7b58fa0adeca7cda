"""Counters and letters: what is kept twice says the same twice."""

from __future__ import annotations

from functools import partial
from typing import Any

from orchestrator.engine.db import Connection
from orchestrator.engine.doctor.look import Broken, Scope, find
from orchestrator.engine.doctor.mend import mend_run

_PENDING = """
WITH {scope}, counted AS (
    SELECT s.run_id, count(*) AS n FROM scope r JOIN workflow_steps s ON s.run_id = r.id
    WHERE s.state = ANY(%(open)s) GROUP BY s.run_id
)
SELECT r.id, r.pending, coalesce(c.n, 0) AS n
FROM scope r LEFT JOIN counted c ON c.run_id = r.id
WHERE r.pending <> coalesce(c.n, 0)
LIMIT %(limit)s
"""


def pending(conn: Connection, scope: Scope) -> list[Broken]:
    """``workflow_runs.pending`` is the number of the run's rows that are not terminal."""
    return [
        Broken("pending", str(row.id), f"pending is {row.pending}, open rows are {row.n}", _mend(row.id))
        for row in find(conn, scope, _PENDING)
    ]


_FAN_OUTS = """
WITH {scope}, counted AS (
    SELECT s.run_id, s.step, count(*) AS total,
           count(*) FILTER (WHERE s.state = ANY(%(open)s)) AS open,
           count(*) FILTER (WHERE s.state = 'done') AS done,
           count(*) FILTER (WHERE s.state = 'skipped') AS skipped,
           count(*) FILTER (WHERE s.state IN ('failed', 'rejected')) AS failed,
           count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled
    FROM scope r JOIN workflow_steps s ON s.run_id = r.id
    WHERE s.kind = 'step' AND s.shard <> ''
    GROUP BY s.run_id, s.step
), kept AS (
    SELECT f.* FROM scope r JOIN workflow_fan_outs f ON f.run_id = r.id
)
SELECT coalesce(k.run_id, c.run_id) AS run_id, coalesce(k.step, c.step) AS step,
       CASE WHEN k.run_id IS NULL THEN 'no counter row'
            ELSE format('%%s shards: %%s open, %%s done, %%s skipped, %%s failed, %%s cancelled',
                        k.total, k.open, k.done, k.skipped, k.failed, k.cancelled) END AS have,
       CASE WHEN c.run_id IS NULL THEN 'none'
            ELSE format('%%s: %%s open, %%s done, %%s skipped, %%s failed, %%s cancelled',
                        c.total, c.open, c.done, c.skipped, c.failed, c.cancelled) END AS want,
       c.run_id IS NOT NULL AS mendable
FROM kept k FULL JOIN counted c ON c.run_id = k.run_id AND c.step = k.step
WHERE (k.total, k.open, k.done, k.skipped, k.failed, k.cancelled)
      IS DISTINCT FROM (c.total, c.open, c.done, c.skipped, c.failed, c.cancelled)
LIMIT %(limit)s
"""


def fan_outs(conn: Connection, scope: Scope) -> list[Broken]:
    """The counters of every fan-out are the counts of its shards."""
    return [
        Broken(
            "fan_outs",
            str(row.run_id),
            f"fan-out {row.step} counts {row.have}; rows of its shards: {row.want}",
            _mend(row.run_id) if row.mendable else None,
        )
        for row in find(conn, scope, _FAN_OUTS)
    ]


# What a letter demands of the rows. A retried run may keep rows of a step that it has not reached again.
_NODES = """
WITH {scope}, nodes AS MATERIALIZED (
    SELECT d.id AS definition_id, n.step->>'id' AS step, n.ordinality::int AS place, n.step->'join'->>'mode' AS mode,
           n.step->>'join_timeout' AS patience
    FROM workflow_definitions d, jsonb_array_elements(d.spec->'steps') WITH ORDINALITY AS n(step, ordinality)
    WHERE d.id IN (SELECT definition_id FROM scope)
), counted AS (
    SELECT s.run_id, s.step, count(*) AS n,
           count(*) FILTER (WHERE s.state = ANY(%(open)s)) AS open,
           count(*) FILTER (WHERE s.state IN ('queued', 'running', 'waiting')) AS moving,
           count(*) FILTER (WHERE s.state = 'done') AS done,
           count(*) FILTER (WHERE s.state = 'skipped') AS skipped,
           count(*) FILTER (WHERE s.state = 'skipped' AND s.cause = 'blocked') AS blocked,
           count(*) FILTER (WHERE s.state IN ('failed', 'rejected')) AS failed
    FROM scope r JOIN workflow_steps s ON s.run_id = r.id
    WHERE s.kind = 'step'
    GROUP BY s.run_id, s.step
)
SELECT r.id, r.state, n.step, substr(r.node_states, n.place, 1) AS letter,
       (SELECT coalesce(string_agg(DISTINCT s.state, ', '), 'none') FROM workflow_steps s
        WHERE s.run_id = r.id AND s.kind = 'step' AND s.step = n.step) AS states
FROM scope r
JOIN nodes n ON n.definition_id = r.definition_id
LEFT JOIN counted c ON c.run_id = r.id AND c.step = n.step
WHERE CASE substr(r.node_states, n.place, 1)
          WHEN 'p' THEN r.state <> 'running' OR c.moving > 0 OR (c.n > 0 AND c.open = 0)
          WHEN 'a' THEN r.state <> 'running' OR coalesce(c.open, 0) = 0
          WHEN 'd' THEN coalesce(c.n, 0) = 0 OR c.open > 0 OR (c.done = 0 AND n.mode = 'all' AND n.patience IS NULL)
          WHEN 's' THEN coalesce(c.n, 0) = 0 OR c.skipped < c.n OR c.blocked = c.n
          WHEN 'f' THEN coalesce(c.n, 0) = 0 OR c.open > 0 OR c.failed = 0
          WHEN 'c' THEN coalesce(c.n, 0) = 0 OR c.open > 0 OR r.state = 'done'
          WHEN 'b' THEN coalesce(c.n, 0) = 0 OR c.blocked < c.n OR r.state = 'done'
          ELSE true END
LIMIT %(limit)s
"""
_WORDS = {"p": "not reached", "a": "active", "d": "done", "s": "skipped", "f": "failed", "c": "cancelled",
          "b": "blocked", "": "missing"}  # fmt: skip


def node_states(conn: Connection, scope: Scope) -> list[Broken]:
    """Each letter of ``node_states`` agrees with the rows of its step, and in a stopped or ended run with its state."""
    return [Broken("node_states", str(row.id), _letter_detail(row), _mend(row.id)) for row in find(conn, scope, _NODES)]


def _letter_detail(row: Any) -> str:
    kept = _WORDS.get(row.letter, repr(row.letter))
    return f"run {row.state}: step {row.step} is kept as {kept}, states of its rows: {row.states}"


def _mend(run_id: Any) -> Any:
    return partial(mend_run, run_id=run_id)
