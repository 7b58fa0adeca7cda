-- Makes the compensations of a stopped run, all pending; `ordinal` is the wave in which they are released.
-- A run that is undone a second time uses the rows of the first again, with attempts going on and a generation more.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_steps_run_step_shard_key.
INSERT INTO workflow_steps (run_id, step, shard, ordinal, kind, state, attempt, max_attempts, generation, queue, item,
                            undoes_id, undoes_steps)
SELECT %(run)s, c.name, c.shard, c.wave, 'compensation', 'pending', 0, c.retries + 1, 0, c.queue, c.item::jsonb,
       c.undoes, ARRAY(SELECT jsonb_array_elements_text(c.undoes_steps::jsonb))
FROM unnest(%(names)s::text[], %(shards)s::text[], %(waves)s::int[], %(retries)s::int[], %(queues)s::text[],
            %(items)s::text[], %(undoes)s::bigint[], %(undoes_steps)s::text[])
     AS c(name, shard, wave, retries, queue, item, undoes, undoes_steps)
ON CONFLICT (run_id, step, shard) DO UPDATE
SET state = 'pending', cause = NULL, error = NULL, output = NULL, output_ref = NULL, finished_at = NULL,
    progress = NULL, note = NULL, ordinal = excluded.ordinal, generation = workflow_steps.generation + 1,
    max_attempts = workflow_steps.attempt + excluded.max_attempts, first_started_at = NULL, started_at = NULL
