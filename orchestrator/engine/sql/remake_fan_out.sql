-- A retry has reached a fan-out (or a step that is not wanted any more, with no shards): shards whose item is gone and
-- that were to run again are skipped, those whose item is another one are pending again under a new generation, new
-- ones are made. Places are those of the new list. The counters are brought in line by recount_remade.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_steps_run_step_shard_key.
WITH wanted AS (
    SELECT w.shard, w.item, w.lock_name, w.changed, (w.n - 1)::int AS ordinal
    FROM unnest(%(shards)s::text[], %(items)s::text[], %(locks)s::text[], %(changed)s::bool[])
         WITH ORDINALITY AS w(shard, item, lock_name, changed, n)
), gone AS (
    UPDATE workflow_steps s
    SET state = 'skipped', cause = %(cause)s, finished_at = clock_timestamp()
    WHERE s.run_id = %(run)s AND s.step = %(step)s AND s.kind = 'step' AND s.state = 'pending'
      AND s.shard NOT IN (SELECT w.shard FROM wanted w)
), moved AS (
    UPDATE workflow_steps s
    SET ordinal = w.ordinal
    FROM wanted w
    WHERE s.run_id = %(run)s AND s.step = %(step)s AND s.kind = 'step' AND s.shard = w.shard
      AND NOT w.changed AND s.ordinal <> w.ordinal
), other AS (
    UPDATE workflow_steps s
    SET state = 'pending', item = w.item::jsonb, lock_name = w.lock_name, ordinal = w.ordinal,
        generation = s.generation + 1, cause = NULL, error = NULL, output = NULL, output_ref = NULL, progress = NULL,
        note = NULL, finished_at = NULL, started_at = NULL, max_attempts = s.attempt + %(max_attempts)s
    FROM wanted w
    WHERE s.run_id = %(run)s AND s.step = %(step)s AND s.kind = 'step' AND s.shard = w.shard AND w.changed
)
INSERT INTO workflow_steps (run_id, step, shard, ordinal, kind, state, attempt, max_attempts, generation, queue, item,
                            topic, lock_name)
SELECT %(run)s, %(step)s, w.shard, w.ordinal, 'step', 'pending', 0, %(max_attempts)s, 0, %(queue)s, w.item::jsonb,
       %(topic)s, w.lock_name
FROM wanted w
WHERE NOT EXISTS (SELECT 1 FROM workflow_steps s
                  WHERE s.run_id = %(run)s AND s.step = %(step)s AND s.kind = 'step' AND s.shard = w.shard)
