-- Closes every row of a stopped run that is not running: what was queued, waiting or not yet released.
-- After a failure those that never started are skipped, and those that were tried and waited for another attempt
-- cancelled, all of them blocked; after a cancel or deadline those that were ready are cancelled.
-- A step that waits for children is left: they are stopped too, and it ends with the last of them.
-- Lock order: the run first (lock_runs), then its steps: rows that a claim is taking right now are waited for and found
--   running.
-- Index: workflow_steps_run_step_shard_key, workflow_fan_outs_run_step_key.
WITH changed AS (
    UPDATE workflow_steps s
    SET state = CASE WHEN s.state = 'pending' OR (%(reason)s = 'failure' AND s.attempt = 0) THEN 'skipped'
                     ELSE 'cancelled' END,
        cause = CASE WHEN %(reason)s = 'failure' OR s.state = 'pending' THEN 'blocked'
                     WHEN %(reason)s = 'cancel' THEN 'cancelled' ELSE 'deadline' END,
        waiting_for = NULL, waiting_name = NULL, finished_at = clock_timestamp()
    WHERE s.run_id = %(run)s AND s.kind = 'step' AND s.state IN ('pending', 'queued', 'waiting')
      AND NOT (s.state = 'waiting' AND s.waiting_for = 'children' AND s.waiting_name IS NOT NULL)
    RETURNING s.step, s.shard, s.state
), closed AS (
    SELECT step, count(*) AS n, count(*) FILTER (WHERE state = 'skipped') AS skipped,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled, min(shard) AS shard
    FROM changed GROUP BY step
), counted AS (
    UPDATE workflow_fan_outs f
    SET open = f.open - c.n, skipped = f.skipped + c.skipped, cancelled = f.cancelled + c.cancelled
    FROM closed c
    WHERE f.run_id = %(run)s AND f.step = c.step
    RETURNING f.step, f.open
)
SELECT c.step, c.n, c.skipped, c.cancelled, f.open FROM closed c LEFT JOIN counted f ON f.step = c.step
