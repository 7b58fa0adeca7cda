-- A fan-out whose join has waited long enough: what has not ended is cancelled or, if it never began, skipped.
-- A handler that still runs has lost its claim, so what it brings later is ignored; its attempt goes into the history.
-- Lock order: the run first (lock_runs), then its steps; the fan-out is guarded by the lock of its run.
-- Index: workflow_steps_run_step_shard_key, workflow_fan_outs_run_step_key, workflow_attempts_step_attempt_key.
WITH changed AS (
    UPDATE workflow_steps s
    SET state = CASE WHEN s.attempt > 0 THEN 'cancelled' ELSE 'skipped' END, cause = 'timeout',
        token = NULL, lease_id = NULL, waiting_for = NULL, waiting_name = NULL, finished_at = clock_timestamp()
    WHERE s.run_id = %(run)s AND s.step = %(step)s AND s.kind = 'step'
      AND s.state IN ('pending', 'queued', 'waiting', 'running')
    RETURNING s.id, s.run_id, s.attempt, s.state, s.cause, s.error, s.worker, s.started_at, s.topic, s.lock_name
), told AS (
    INSERT INTO workflow_attempts (run_id, step_row_id, attempt, cause, error, worker, started_at, finished_at)
    SELECT c.run_id, c.id, c.attempt, c.cause, c.error, c.worker, c.started_at, clock_timestamp()
    FROM changed c
    WHERE c.attempt > 0 AND c.state IN ('failed', 'cancelled')
    ON CONFLICT (step_row_id, attempt) DO NOTHING
), counted AS (
    UPDATE workflow_fan_outs f
    SET open = 0,
        skipped = f.skipped + (SELECT count(*) FROM changed WHERE state = 'skipped'),
        cancelled = f.cancelled + (SELECT count(*) FROM changed WHERE state = 'cancelled')
    WHERE f.run_id = %(run)s AND f.step = %(step)s
)
SELECT topic, lock_name FROM changed
