-- Makes runs with their first steps, fan-out counters and tickets, in one statement; and wakes the dispatcher.
-- A run whose idempotency key is taken is left out: its id does not come back, and nothing of it is made.
-- `confirm`: a workflow whose definition was remembered; if it is no longer the latest, nothing is made either.
-- One moment for all times of a run, to the microsecond; not now(), which is when the caller's transaction began.
-- Lock order: the rows are new; only a concurrent holder of the same idempotency key is waited for.
-- Index: workflow_runs_idempotency_key, workflow_definitions_version_key.
WITH asked AS MATERIALIZED (
    SELECT a.*, clock_timestamp() AS moment FROM unnest(
        %(ids)s::uuid[], %(definitions)s::bigint[], %(workflows)s::text[], %(versions)s::int[], %(subjects)s::text[],
        %(labels)s::text[], %(node_states)s::text[], %(pendings)s::int[], %(current_steps)s::text[], %(inputs)s::text[],
        %(keys)s::text[], %(deadlines)s::float8[], %(on_deadlines)s::text[], %(delays)s::float8[],
        %(run_locks)s::text[], %(conflicts)s::text[], %(exclusive_keys)s::text[], %(afters)s::text[], %(helds)s::bool[],
        %(parent_runs)s::uuid[], %(parent_steps)s::bigint[], %(caps)s::timestamptz[]
    ) AS a(id, definition_id, workflow, version, subject_id, labels, node_states, pending, current_step, input, key,
           deadline, on_deadline, delay, lock_name, on_lock_conflict, exclusive_key, after_runs, held,
           parent_run, parent_step, deadline_cap)
), made AS (
    INSERT INTO workflow_runs (id, definition_id, workflow, version, subject_id, labels, state, node_states, pending,
                               current_step, input, idempotency_key, deadline_seconds, on_deadline, submitted_by,
                               lock_name, on_lock_conflict, exclusive_key, after_runs, parent_run_id,
                               parent_step_id, submitted_at, available_at, started_at, deadline_at, updated_at)
    SELECT a.id, a.definition_id, a.workflow, a.version, a.subject_id, a.labels::jsonb, 'running', a.node_states,
           a.pending, a.current_step, a.input::jsonb, a.key, a.deadline, a.on_deadline, %(actor)s,
           a.lock_name, a.on_lock_conflict, a.exclusive_key, a.after_runs::uuid[], a.parent_run, a.parent_step,
           a.moment,
           CASE WHEN a.delay > 0 THEN a.moment + a.delay * interval '1 second' END,
           CASE WHEN a.delay > 0 OR a.held THEN NULL ELSE a.moment END,
           CASE WHEN a.delay > 0 OR a.held THEN NULL
                ELSE least(a.moment + a.deadline * interval '1 second', a.deadline_cap) END,
           a.moment
    FROM asked a
    WHERE %(confirm)s::text IS NULL OR a.definition_id = (
        SELECT d.id FROM workflow_definitions d
        WHERE d.workflow = %(confirm)s AND d.retired_at IS NULL ORDER BY d.version DESC LIMIT 1)
    ON CONFLICT (workflow, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, definition_id
), opened AS (
    INSERT INTO workflow_steps (run_id, step, shard, ordinal, kind, state, waiting_for, waiting_name, attempt,
                                max_attempts, generation, queue, item, topic, lock_name, ready_at)
    SELECT m.id, s.step, s.shard, s.ordinal, 'step', s.state, s.waiting_for, s.waiting_name, 0, s.max_attempts, 0,
           s.queue, s.item::jsonb, s.topic, s.lock_name,
           CASE WHEN s.state <> 'pending' THEN clock_timestamp() + s.ready_in * interval '1 second' END
    FROM unnest(%(step_runs)s::uuid[], %(steps)s::text[], %(shards)s::text[], %(ordinals)s::int[], %(states)s::text[],
                %(waits)s::text[], %(max_attempts)s::int[], %(queues)s::text[], %(items)s::text[],
                %(ready_in)s::float8[], %(topics)s::text[], %(locks)s::text[], %(wait_names)s::text[])
         AS s(run_id, step, shard, ordinal, state, waiting_for, max_attempts, queue, item, ready_in, topic, lock_name,
              waiting_name)
    JOIN made m ON m.id = s.run_id
), counted AS (
    INSERT INTO workflow_fan_outs (run_id, step, total, open, "window", join_due_at)
    SELECT m.id, f.step, f.total, f.total, f.released, clock_timestamp() + f.join_timeout * interval '1 second'
    FROM unnest(%(fan_runs)s::uuid[], %(fan_steps)s::text[], %(fan_totals)s::int[], %(fan_windows)s::int[],
                %(fan_timeouts)s::float8[])
         AS f(run_id, step, total, released, join_timeout)
    JOIN made m ON m.id = f.run_id
), ticketed AS (
    INSERT INTO workflow_outbox (run_id, definition_id, step, queue, tickets, gated)
    SELECT m.id, m.definition_id, t.step, t.queue, t.tickets, t.gated
    FROM unnest(%(ticket_runs)s::uuid[], %(ticket_steps)s::text[], %(ticket_queues)s::text[], %(tickets)s::int[],
                %(gated)s::bool[])
         AS t(run_id, step, queue, tickets, gated)
    JOIN made m ON m.id = t.run_id
), woken AS (
    SELECT pg_notify('switchyard_outbox', '') WHERE %(wake)s
)
SELECT m.id, (SELECT count(*) FROM woken) FROM made m
