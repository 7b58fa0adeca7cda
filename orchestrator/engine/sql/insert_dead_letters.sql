-- One dead letter for each row that failed for good; a row that fails again reopens its own, with a count.
-- Lock order: the runs first (lock_runs), then dead letters, which are guarded by the lock of their run.
-- Index: workflow_dead_letters_step_row_id_key.
INSERT INTO workflow_dead_letters (run_id, step_row_id, workflow, version, step, shard, state, cause, error,
                                   fingerprint, attempts, count, note)
SELECT d.run_id, d.row_id, d.workflow, d.version, d.step, d.shard, 'open', d.cause, d.error::jsonb, d.fingerprint,
       d.attempts, 1, ''
FROM unnest(%(runs)s::uuid[], %(rows)s::bigint[], %(workflows)s::text[], %(versions)s::int[], %(steps)s::text[],
            %(shards)s::text[], %(causes)s::text[], %(errors)s::text[], %(fingerprints)s::text[], %(attempts)s::int[])
     AS d(run_id, row_id, workflow, version, step, shard, cause, error, fingerprint, attempts)
ON CONFLICT (step_row_id) DO UPDATE
SET state = 'open', cause = excluded.cause, error = excluded.error, fingerprint = excluded.fingerprint,
    attempts = excluded.attempts, count = workflow_dead_letters.count + 1, last_at = now(), closed_at = NULL
