-- An audited replay of one compensation that failed for good: it is queued again with a fresh budget, and its run,
-- which had ended with an incomplete undo, compensates until it has ended.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_steps_pkey, workflow_runs_pkey.
WITH reopened AS (
    UPDATE workflow_steps s
    SET state = 'queued', cause = NULL, error = NULL, finished_at = NULL, ready_at = clock_timestamp(), progress = NULL,
        max_attempts = s.attempt + 1 + %(retries)s
    WHERE s.id = %(row)s AND s.run_id = %(run)s AND s.kind = 'compensation' AND s.state IN ('failed', 'cancelled')
    RETURNING s.run_id
)
UPDATE workflow_runs r
SET state = 'compensating', compensation = 'running', finished_at = NULL, pending = r.pending + 1,
    force_at = NULL, updated_at = clock_timestamp()
FROM reopened o
WHERE r.id = o.run_id
