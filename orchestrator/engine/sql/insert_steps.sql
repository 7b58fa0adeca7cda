-- Makes rows that have become ready (queued, or already running in the worker that opened them), that wait for a
-- timer, or that were never reached when the run stopped.
-- Lock order: the runs first (lock_runs); the rows are new.
-- Index: none is read.
INSERT INTO workflow_steps (
    run_id, step, shard, ordinal, kind, state, cause, waiting_for, waiting_name, attempt, max_attempts, generation,
    queue, item, error, topic, lock_name, token, lease_id, worker, ready_at, first_started_at, started_at, finished_at)
SELECT n.run_id, n.step, n.shard, n.ordinal, n.kind, n.state, n.cause, n.waiting_for, n.waiting_name, n.attempt,
       n.max_attempts, 0, n.queue, n.item::jsonb, n.error::jsonb, n.topic, n.lock_name,
       CASE n.state WHEN 'running' THEN n.token END,
       CASE n.state WHEN 'running' THEN %(lease)s::bigint END,
       CASE n.state WHEN 'running' THEN %(worker)s::text END,
       CASE WHEN n.state IN ('queued', 'running', 'waiting') THEN now() + n.ready_in * interval '1 second' END,
       CASE n.state WHEN 'running' THEN clock_timestamp() END,
       CASE n.state WHEN 'running' THEN clock_timestamp() END,
       CASE WHEN n.state IN ('done', 'failed', 'skipped', 'cancelled', 'rejected') THEN clock_timestamp() END
FROM unnest(
    %(runs)s::uuid[], %(steps)s::text[], %(shards)s::text[], %(ordinals)s::int[], %(kinds)s::text[], %(states)s::text[],
    %(causes)s::text[], %(waits)s::text[], %(attempts)s::int[], %(max_attempts)s::int[], %(queues)s::text[],
    %(items)s::text[], %(errors)s::text[], %(topics)s::text[], %(locks)s::text[], %(wait_names)s::text[],
    %(tokens)s::bigint[], %(ready_in)s::float8[]
) AS n(run_id, step, shard, ordinal, kind, state, cause, waiting_for, attempt, max_attempts, queue, item, error,
       topic, lock_name, waiting_name, token, ready_in)
RETURNING id, run_id, step, shard, ordinal, state, token
