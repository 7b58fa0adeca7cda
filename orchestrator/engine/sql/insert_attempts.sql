-- History of attempts that did not succeed. One that is there already stays as it is.
-- Lock order: the runs first (lock_runs); the rows are new.
-- Index: workflow_attempts_step_attempt_key.
INSERT INTO workflow_attempts (run_id, step_row_id, attempt, cause, error, worker, started_at, finished_at, retry_at)
SELECT a.run_id, a.step, a.attempt, a.cause, a.error::jsonb, a.worker, a.started_at, clock_timestamp(), a.retry_at
FROM unnest(%(runs)s::uuid[], %(steps)s::bigint[], %(attempts)s::int[], %(causes)s::text[], %(errors)s::text[],
            %(workers)s::text[], %(started)s::timestamptz[], %(retry)s::timestamptz[])
     AS a(run_id, step, attempt, cause, error, worker, started_at, retry_at)
ON CONFLICT (step_row_id, attempt) DO NOTHING
