-- For the doctor: a run that has ended has no open rows, says when it ended, and excludes nobody. What was left open is
-- closed as a stop closes it: unreached rows skipped, those with a worker or a wait cancelled. Of a run that has not
-- ended nothing is touched but a `finished_at` that it cannot have.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_runs_pkey, workflow_steps_run_step_shard_key.
WITH ended AS (
    SELECT id, coalesce(stop, 'failure') AS stop FROM workflow_runs
    WHERE id = %(run)s AND state IN ('done', 'failed', 'cancelled')
), closed AS (
    UPDATE workflow_steps s
    SET state = CASE WHEN s.state IN ('pending', 'queued') THEN 'skipped' ELSE 'cancelled' END,
        cause = CASE WHEN s.state IN ('pending', 'queued') OR e.stop = 'failure' THEN 'blocked'
                     WHEN e.stop = 'cancel' THEN 'cancelled' ELSE 'deadline' END,
        waiting_for = NULL, waiting_name = NULL, token = NULL, lease_id = NULL, finished_at = clock_timestamp()
    FROM ended e
    WHERE s.run_id = e.id AND s.state IN ('pending', 'queued', 'running', 'waiting')
    RETURNING s.id
)
UPDATE workflow_runs r
SET pending = CASE WHEN e.id IS NULL THEN r.pending ELSE 0 END,
    exclusive_key = CASE WHEN e.id IS NULL THEN r.exclusive_key END,
    finished_at = CASE WHEN e.id IS NOT NULL THEN coalesce(r.finished_at, r.updated_at) END
FROM workflow_runs o
LEFT JOIN ended e ON e.id = o.id
LEFT JOIN (SELECT count(*) AS n FROM closed) c ON true
WHERE o.id = %(run)s AND r.id = o.id
