-- Notes on steps and shards that their undo has ended, well or not: a retry will run them again, under a new
-- idempotency key. Timers and approvals, which never start, are among the steps that an entry of on_failure undoes.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_steps_run_step_shard_key.
UPDATE workflow_steps s
SET undone_at = clock_timestamp()
WHERE s.run_id = %(run)s AND s.kind = 'step' AND s.undone_at IS NULL
  AND (s.first_started_at IS NOT NULL OR s.state = 'done')
  AND (s.id = ANY(%(rows)s::bigint[]) OR s.step = ANY(%(steps)s::text[]))
