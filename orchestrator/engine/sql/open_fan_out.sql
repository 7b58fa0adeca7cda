-- Makes the counter row and all shards of a fan-out: the first `window` are queued, the others wait as pending.
-- Lock order: the run first (lock_runs); the rows are new.
-- Index: none is read.
WITH counter AS (
    INSERT INTO workflow_fan_outs (run_id, step, total, open, "window", join_due_at)
    VALUES (%(run)s, %(step)s, cardinality(%(shards)s::text[]), cardinality(%(shards)s::text[]), %(window)s,
            clock_timestamp() + %(join_timeout)s::float8 * interval '1 second')
)
INSERT INTO workflow_steps (run_id, step, shard, ordinal, kind, state, attempt, max_attempts, generation,
                            queue, item, topic, lock_name, ready_at)
SELECT %(run)s, %(step)s, i.shard, i.n - 1, 'step',
       CASE WHEN i.n <= %(window)s THEN 'queued' ELSE 'pending' END, 0, %(max_attempts)s, 0,
       %(queue)s, i.item::jsonb, %(topic)s, i.lock_name,
       CASE WHEN i.n <= %(window)s THEN now() END
FROM unnest(%(shards)s::text[], %(items)s::text[], %(locks)s::text[]) WITH ORDINALITY AS i(shard, item, lock_name, n)
