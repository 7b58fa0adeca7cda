"""Writes runs after their outlines: statements on whole sets, so that a million runs take minutes.

The one place beside ``engine.transitions`` that writes states, because it makes up the past instead of changing the
present; ``generate`` calls it on databases that may be played with. A batch is one transaction and agrees with itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.db import connection, transaction

from orchestrator.core import metric_names
from orchestrator.core.states import RunState
from orchestrator.testing.demo.outline import Outline

NAMES = "demo_shape, demo_row, demo_event, demo_fan, demo_lease, demo_run, demo_parent"
TABLES = f"""
DROP TABLE IF EXISTS {NAMES};
CREATE TEMP TABLE demo_shape (
    shape int PRIMARY KEY, definition_id bigint, workflow text, version int, subject text, state text, cause text,
    compensation text, stop text, node_states text, current text, pending int, error jsonb, lo float8, hi float8,
    deadline float8, on_deadline text, retries int, missed bool, delayed bool, hold bool, over bool, output jsonb);
CREATE TEMP TABLE demo_row (
    shape int, pos int, step text, shard text, ordinal int, kind text, state text, queue text, a float8, b float8,
    tries int, fails int, max_attempts int, cause text, fail_cause text, error jsonb, fail_error jsonb,
    waiting_for text, waiting_name text, due_lo float8, due_hi float8, topic text, lock text, item jsonb, output
    jsonb, progress float8, note text, victim text, victim_shard text, undoes_steps text[], undone float8, child
    int, letter text, fingerprint text);
CREATE TEMP TABLE demo_event (
    shape int, pos int, at float8, action text, actor text, role text, reason text, before jsonb, after jsonb);
CREATE TEMP TABLE demo_fan (
    shape int, step text, total int, open int, done int, skipped int, failed int, cancelled int, width int);
CREATE TEMP TABLE demo_lease (queue text, number int, id bigint, name text);
CREATE TEMP TABLE demo_run (
    n bigint, shape int, id uuid, submitted timestamptz, length float8, account bigint, parent_run uuid,
    parent_step bigint, noise float8);
CREATE TEMP TABLE demo_parent (LIKE demo_run);
"""
#: Where the ends of a batch's runs lie: up to this share of what has passed since they were submitted.
_ROOM = 0.98
_UUID = """(lpad(to_hex((extract(epoch FROM {at}) * 1000)::bigint), 12, '0') || '7' || substr(md5({seed}), 1, 3) || '8'
    || substr(md5({seed}), 4, 15))::uuid"""
_ENDED = f"""
INSERT INTO demo_run (n, shape, id, submitted, length, account, noise)
SELECT n, shape, {_UUID.format(at="submitted", seed="%(seed)s || ':' || n")}, submitted,
       least(lo * power(hi / lo, r1), {_ROOM} * extract(epoch FROM %(now)s - submitted)), n, r2
FROM (
    SELECT n, (%(shapes)s::int[])[width_bucket(r, %(bounds)s::float8[])] AS shape, random() AS r1, random() AS r2,
           %(now)s - %(span)s * interval '1 second' * (1 - warp) - interval '1 second' AS submitted
    FROM (SELECT n, random() AS r, u + 0.09 * sin(u * 2 * pi() * %(days)s) / %(days)s AS warp
          FROM (SELECT n, (n - %(base)s + 0.5) / %(of)s AS u
                FROM generate_series(%(first)s::bigint, %(last)s::bigint) n) a) b) c
JOIN demo_shape USING (shape)
"""
_LIVE = f"""
INSERT INTO demo_run (n, shape, id, submitted, length, account, noise)
SELECT n, shape, {_UUID.format(at="submitted", seed="%(seed)s || ':' || n")}, submitted, elapsed, n / 2, random()
FROM (
    SELECT n, shape, elapsed, %(now)s - elapsed * interval '1 second' AS submitted
    FROM (SELECT n, shape, lo * power(hi / lo, random()) AS elapsed
          FROM (SELECT n, (%(shapes)s::int[])[1 + (n - %(first)s) %% %(kinds)s] AS shape
                FROM generate_series(%(first)s::bigint, %(last)s::bigint) n) a JOIN demo_shape USING (shape)) b) c
ORDER BY submitted
"""
_CHILDREN = f"""
INSERT INTO demo_run (n, shape, id, submitted, length, account, parent_run, parent_step, noise)
SELECT r.n, d.child, {_UUID.format(at="s.first_started_at", seed="%(seed)s || ':child:' || r.n")}, s.first_started_at,
       extract(epoch FROM coalesce(s.finished_at, %(now)s) - s.first_started_at), r.account, r.id, s.id, r.noise
FROM demo_parent r JOIN demo_row d ON d.shape = r.shape AND d.child IS NOT NULL AND d.a IS NOT NULL
JOIN workflow_steps s ON s.run_id = r.id AND s.step = d.step AND s.shard = d.shard
"""
_AT = "r.submitted + r.length * {} * interval '1 second'"
_RUNS = f"""
INSERT INTO workflow_runs (id, definition_id, workflow, version, subject_id, labels, state, cause, compensation, stop,
    current_step, pending, node_states, input, output, error, idempotency_key, retries, parent_run_id, parent_step_id,
    deadline_seconds, on_deadline, submitted_by, submitted_at, available_at, started_at, deadline_at,
    deadline_missed_at, updated_at, finished_at, cancel_requested_at, stopped_at, hold_until)
SELECT r.id, p.definition_id, p.workflow, p.version, replace(p.subject, '{{n}}', to_char(r.n, 'FM0000000')),
    jsonb_build_object('customer', 'customer' || r.account || '@mail.example',
        'tier', (ARRAY['gold','silver','basic','basic'])[1 + (r.n %% 4)],
        'region', (ARRAY['north','east','south','west'])[1 + (r.n / 3 %% 4)]),
    p.state, p.cause, p.compensation, p.stop, p.current, p.pending, p.node_states,
    jsonb_build_object('account', r.account, 'source', 's3://uploads/' || r.n || '.mov', 'cents', 500 + r.n %% 9000),
    p.output, replace(p.error::text, '{{n}}', r.n::text)::jsonb,
    CASE WHEN r.parent_run IS NULL AND r.n %% 5 = 0 THEN 'key-' || r.n END, p.retries, r.parent_run, r.parent_step,
    t.deadline, p.on_deadline, CASE WHEN r.parent_run IS NULL THEN 'shop-api' ELSE 'engine' END, r.submitted,
    CASE WHEN p.delayed THEN %(now)s + (1 + r.noise) * interval '1 hour' END,
    CASE WHEN NOT p.delayed THEN r.submitted END,
    CASE WHEN NOT p.delayed THEN r.submitted + t.deadline * interval '1 second' END,
    CASE WHEN p.missed THEN r.submitted + (t.deadline + 1) * interval '1 second' END,
    {_AT.format(1)}, CASE WHEN p.over THEN {_AT.format(1)} END,
    CASE WHEN p.stop = 'cancel' THEN {_AT.format("0.798")} END,
    CASE WHEN p.stop IS NOT NULL THEN {_AT.format("0.8")} END,
    CASE WHEN p.hold THEN %(now)s + (900 + 900 * r.noise) * interval '1 second' END
FROM demo_run r JOIN demo_shape p USING (shape)
CROSS JOIN LATERAL (SELECT CASE WHEN p.missed AND p.over THEN floor(0.79 * r.length) ELSE p.deadline END AS deadline) t
ORDER BY r.n
"""
# Where an attempt begins and ends: the time from a to b is shared out among the attempts.
_TRY = "(d.a + (coalesce(d.b, 1) - d.a) * ({} - 1) / greatest(d.tries, 1))"
_STEPS = f"""
INSERT INTO workflow_steps (run_id, step, shard, ordinal, kind, state, cause, waiting_for, waiting_name, attempt,
    max_attempts, generation, queue, item, output, error, progress, note, topic, lock_name, undoes_id, undoes_steps,
    undone_at, lease_id, worker, token, created_at, ready_at, first_started_at, started_at, finished_at)
SELECT r.id, d.step, d.shard, d.ordinal, d.kind, d.state, d.cause, d.waiting_for,
    replace(d.waiting_name, '{{account}}', r.account::text), d.tries, d.max_attempts, 0, d.queue, d.item, d.output,
    replace(d.error::text, '{{n}}', r.n::text)::jsonb, d.progress, d.note, d.topic,
    replace(d.lock, '{{input.account}}', r.account::text), <victim>, d.undoes_steps,
    CASE WHEN d.undone IS NOT NULL THEN {_AT.format("d.undone")} END,
    CASE WHEN d.state = 'running' THEN l.id END, CASE WHEN d.tries > 0 THEN l.name END,
    CASE WHEN d.state = 'running' THEN r.n * 1000 + d.pos END,
    {_AT.format("coalesce(d.a * 0.995, d.b, 0.95)")},
    CASE WHEN d.due_lo IS NOT NULL THEN %(now)s + (d.due_lo + (d.due_hi - d.due_lo) * r.noise) * interval '1 second'
         WHEN d.waiting_for IS NULL AND d.state <> 'pending' THEN {_AT.format("coalesce(d.a * 0.997, 0.96)")} END,
    {_AT.format("d.a")}, {_AT.format(_TRY.format("greatest(d.tries, 1)"))},
    CASE WHEN d.state IN ('done', 'failed', 'skipped', 'cancelled', 'rejected') THEN {_AT.format("d.b")} END
FROM demo_run r JOIN demo_row d USING (shape)
LEFT JOIN demo_lease l ON l.queue = d.queue AND l.number = (r.n + d.pos) %% %(leases)s
<join> WHERE <which> ORDER BY r.n, d.pos
"""
_ROWS = _STEPS.replace("<victim>", "NULL::bigint").replace("<join>", "").replace("<which>", "d.victim IS NULL")
_VICTIM = "JOIN workflow_steps s ON s.run_id = r.id AND s.step = d.victim AND s.shard = d.victim_shard"
_UNDOS = _STEPS.replace("<victim>", "s.id").replace("<join>", _VICTIM).replace("<which>", "d.victim IS NOT NULL")
_MADE = "JOIN workflow_steps s ON s.run_id = r.id AND s.step = d.step AND s.shard = d.shard"
_FAN_OUTS = """
INSERT INTO workflow_fan_outs (run_id, step, total, open, done, skipped, failed, cancelled, "window")
SELECT r.id, f.step, f.total, f.open, f.done, f.skipped, f.failed, f.cancelled, f.width
FROM demo_run r JOIN demo_fan f USING (shape)
"""
_ATTEMPTS = f"""
INSERT INTO workflow_attempts (run_id, step_row_id, attempt, cause, error, worker, started_at, finished_at, retry_at)
SELECT r.id, s.id, k, d.fail_cause, replace(coalesce(d.fail_error, d.error)::text, '{{n}}', r.n::text)::jsonb, s.worker,
    {_AT.format(_TRY.format("k"))}, {_AT.format(_TRY.format("k + 1"))},
    CASE WHEN k < d.fails OR d.state <> 'failed' THEN {_AT.format(_TRY.format("k + 1"))} END
FROM demo_run r JOIN demo_row d ON d.shape = r.shape AND d.fails > 0 {_MADE}
CROSS JOIN LATERAL generate_series(1, d.fails) k ORDER BY r.n, d.pos, k
"""
_LETTERS = f"""
INSERT INTO workflow_dead_letters (run_id, step_row_id, workflow, version, step, shard, state, cause, error,
    fingerprint, attempts, count, first_at, last_at, closed_at, note)
SELECT r.id, s.id, p.workflow, p.version, d.step, d.shard, d.letter, d.fail_cause,
    replace(coalesce(d.error, d.fail_error)::text, '{{n}}', r.n::text)::jsonb, d.fingerprint, d.fails, 1,
    {_AT.format("d.b")}, {_AT.format("d.b")},
    CASE WHEN d.letter <> 'open' THEN least({_AT.format("1.05")}, %(now)s) END,
    CASE WHEN d.letter = 'discarded' THEN 'the customer was called; nothing to repeat' ELSE '' END
FROM demo_run r JOIN demo_shape p USING (shape) JOIN demo_row d ON d.shape = r.shape AND d.letter IS NOT NULL {_MADE}
ORDER BY r.submitted
"""
_AUDIT = f"""
INSERT INTO workflow_audit (run_id, action, actor, role, reason, before, after, at)
SELECT r.id, e.action, e.actor, e.role, e.reason, e.before, e.after, least({_AT.format("e.at")}, %(now)s)
FROM demo_run r JOIN demo_event e USING (shape) ORDER BY r.submitted + r.length * interval '1 second', r.n, e.pos
"""
_OUTBOX = """
INSERT INTO workflow_outbox (run_id, definition_id, step, queue, tickets, gated, created_at)
SELECT r.id, p.definition_id, d.step, d.queue, least(count(*), 50), bool_or(d.topic IS NOT NULL OR d.lock IS NOT NULL),
       clock_timestamp()
FROM demo_run r JOIN demo_shape p USING (shape) JOIN demo_row d ON d.shape = r.shape AND d.state = 'queued'
GROUP BY r.id, p.definition_id, d.step, d.queue
"""
_COUNT = """
INSERT INTO workflow_rollups (metric, labels, value) SELECT {} ON CONFLICT (metric, labels)
DO UPDATE SET value = workflow_rollups.value + excluded.value
"""
_HOUR = """
INSERT INTO workflow_rollup_hours (metric, labels, hour, value) SELECT {} ON CONFLICT (hour, metric, labels)
DO UPDATE SET value = workflow_rollup_hours.value + excluded.value
"""
_COUNTERS = (
    _HOUR.format("""%(run_bucket)s, jsonb_build_object('workflow', p.workflow, 'state', p.state, 'le',
        (%(run_labels)s::text[])[1 + width_bucket(r.length, %(run_bounds)s::float8[])]),
        date_trunc('hour', r.submitted + r.length * interval '1 second', 'UTC'), count(*)
        FROM demo_run r JOIN demo_shape p USING (shape) WHERE p.over GROUP BY 2, 3"""),
    _HOUR.format("""%(wait_bucket)s, jsonb_build_object('queue', d.queue, 'le', w.le), c.hour, sum(c.n * w.share)
        FROM (SELECT shape, date_trunc('hour', submitted, 'UTC') AS hour, count(*) AS n FROM demo_run GROUP BY 1, 2) c
        JOIN demo_row d USING (shape) CROSS JOIN (VALUES ('0.1', 6), ('0.5', 3), ('5.0', 1)) w(le, share)
        WHERE d.tries > 0 GROUP BY 2, 3"""),
    _COUNT.format("""%(run_bucket)s, jsonb_build_object('workflow', p.workflow, 'state', p.state, 'le',
        (%(run_labels)s::text[])[1 + width_bucket(r.length, %(run_bounds)s::float8[])]), count(*)
        FROM demo_run r JOIN demo_shape p USING (shape) WHERE p.over GROUP BY 2"""),
    _COUNT.format("""%(run_sum)s, jsonb_build_object('workflow', p.workflow, 'state', p.state), sum(r.length)
        FROM demo_run r JOIN demo_shape p USING (shape) WHERE p.over GROUP BY 2"""),
    _COUNT.format("""%(failed)s, jsonb_build_object('workflow', p.workflow, 'cause', p.cause), count(*)
        FROM demo_run r JOIN demo_shape p USING (shape) WHERE p.state = 'failed' GROUP BY 2"""),
    _COUNT.format("""%(missed)s, jsonb_build_object('workflow', p.workflow), count(*)
        FROM demo_run r JOIN demo_shape p USING (shape) WHERE p.missed GROUP BY 2"""),
    _COUNT.format("""%(attempts)s, jsonb_build_object('workflow', p.workflow, 'step', d.step, 'outcome', o.outcome),
        sum(c.n * o.n) FROM (SELECT shape, count(*) AS n FROM demo_run GROUP BY shape) c
        JOIN demo_shape p USING (shape) JOIN demo_row d USING (shape)
        CROSS JOIN LATERAL (VALUES ('done', (d.state = 'done' AND d.tries > 0)::int), (d.fail_cause, d.fails))
        AS o(outcome, n)
        WHERE o.outcome IS NOT NULL AND o.n > 0 GROUP BY 2"""),
    _COUNT.format("""%(wait_bucket)s, jsonb_build_object('queue', d.queue, 'le', w.le), sum(c.n * w.share)
        FROM (SELECT shape, count(*) AS n FROM demo_run GROUP BY shape) c JOIN demo_row d USING (shape)
        CROSS JOIN (VALUES ('0.1', 6), ('0.5', 3), ('5.0', 1)) w(le, share) WHERE d.tries > 0 GROUP BY 2"""),
)  # fmt: skip


def prepare(outlines: Sequence[Outline], children: dict[str, int], leases: Sequence[tuple[str, int, int, str]]) -> None:
    """Puts the outlines into temporary tables. ``children``: number of the outline by the state of its row."""
    shapes, rows, events, fans = [], [], [], []
    for number, one in enumerate(outlines, start=1):
        shapes.append(_shape(number, one))
        rows += [_row(number, pos, row, children) for pos, row in enumerate(one.rows)]
        names = ("at", "action", "actor", "role", "reason", "before", "after")
        events += [
            {"shape": number, "pos": pos, **dict(zip(names, event, strict=True))}
            for pos, event in enumerate(sorted(one.events, key=lambda e: e[0]))
        ]
        fans += [_fan(number, *fan) for fan in one.fan_outs()]
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        for table, values in (("shape", shapes), ("row", rows), ("event", events), ("fan", fans)):
            query = f"INSERT INTO demo_{table} SELECT * FROM jsonb_populate_recordset(NULL::demo_{table}, %s::jsonb)"
            cursor.execute(query, [json.dumps(values)])
        cursor.executemany("INSERT INTO demo_lease VALUES (%s, %s, %s, %s)", leases)
        for table in ("shape", "row", "event", "fan", "lease"):
            cursor.execute(f"ANALYZE demo_{table}")


def _shape(number: int, one: Outline) -> dict[str, Any]:
    plan = one.plan
    over = one.state in (RunState.DONE, RunState.FAILED, RunState.CANCELLED)
    return {
        "shape": number, "definition_id": plan.definition_id, "workflow": plan.workflow, "version": plan.version,
        "subject": f"{plan.workflow.split('-')[0]}-{{n}}", "state": one.state, "cause": one.cause,
        "compensation": one.compensation, "stop": one.stop, "node_states": one.node_states, "current": one.current,
        "pending": one.pending, "error": one.error, "lo": one.length[0], "hi": one.length[1],
        "deadline": plan.spec.deadline, "on_deadline": plan.spec.on_deadline, "retries": one.retries,
        "missed": one.missed, "delayed": one.delayed, "hold": one.hold, "over": over,
        "output": {"ok": True} if one.state == RunState.DONE else None,
    }  # fmt: skip


def _row(shape: int, pos: int, row: Any, children: dict[str, int]) -> dict[str, Any]:
    made = asdict(row)
    victim = made.pop("undoes") or (None, None)
    due = made.pop("due") or (None, None)
    child = children.get(row.state) if made.pop("child") else None
    more = {"victim": victim[0], "victim_shard": victim[1], "due_lo": due[0], "due_hi": due[1], "child": child}
    return {"shape": shape, "pos": pos, **made, **more}


def _fan(shape: int, step: str, total: int, states: Any, width: int) -> dict[str, Any]:
    ended = {"done": states["done"], "skipped": states["skipped"], "cancelled": states["cancelled"]}
    ended["failed"] = states["failed"] + states["rejected"]
    return {"shape": shape, "step": step, "total": total, "open": total - sum(ended.values()), "width": width, **ended}


def stamp(pick: str, values: dict[str, Any]) -> tuple[int, int]:
    """Makes one batch in one transaction; how many runs and rows. ``pick`` is ``"ended"`` or ``"live"``."""
    values = {**values, **_metrics()}
    with transaction.atomic(), connection.cursor() as cursor:
        runs = rows = 0
        cursor.execute("SELECT setseed(%s)", [values["random"]])
        for choose in (_ENDED if pick == "ended" else _LIVE, _CHILDREN):
            if choose is _CHILDREN:
                cursor.execute("TRUNCATE demo_parent; INSERT INTO demo_parent SELECT * FROM demo_run")
            cursor.execute("TRUNCATE demo_run")
            cursor.execute(choose, values)
            if not cursor.rowcount:
                break
            cursor.execute("ANALYZE demo_run")
            cursor.execute(_RUNS, values)
            runs += cursor.rowcount
            for statement in (_ROWS, _UNDOS):
                cursor.execute(statement, values)
                rows += cursor.rowcount
            for statement in (_FAN_OUTS, _ATTEMPTS, _LETTERS, _AUDIT, _OUTBOX, *_COUNTERS):
                cursor.execute(statement, values)
        return runs, rows


def _metrics() -> dict[str, Any]:
    bounds = metric_names.RUN_BUCKETS
    return {
        "run_bucket": metric_names.RUN_DURATION_BUCKET, "run_sum": metric_names.RUN_DURATION_SUM,
        "failed": metric_names.RUNS_FAILED, "missed": metric_names.RUNS_MISSED_DEADLINE,
        "attempts": metric_names.STEP_ATTEMPTS, "wait_bucket": metric_names.STEPS_WAITING_BUCKET,
        "run_bounds": [float(bound) for bound in bounds[:-1]],
        "run_labels": [metric_names.bound_label(bound) for bound in bounds],
    }  # fmt: skip
