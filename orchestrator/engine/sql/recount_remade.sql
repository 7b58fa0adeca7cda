-- The counters of a fan-out that was remade, from its rows; its join waits anew.
-- Lock order: the run first (lock_runs), then its fan-out.
-- Index: workflow_steps_run_step_shard_key, workflow_fan_outs_run_step_key.
UPDATE workflow_fan_outs f
SET total = c.total, open = c.open, done = c.done, skipped = c.skipped, failed = c.failed, cancelled = c.cancelled,
    join_due_at = clock_timestamp() + %(join_timeout)s::float8 * interval '1 second'
FROM (SELECT count(*) AS total,
             count(*) FILTER (WHERE s.state IN ('pending', 'queued', 'running', 'waiting')) AS open,
             count(*) FILTER (WHERE s.state = 'done') AS done,
             count(*) FILTER (WHERE s.state = 'skipped') AS skipped,
             count(*) FILTER (WHERE s.state IN ('failed', 'rejected')) AS failed,
             count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled
      FROM workflow_steps s
      WHERE s.run_id = %(run)s AND s.step = %(step)s AND s.kind = 'step' AND s.shard <> '') c
WHERE f.run_id = %(run)s AND f.step = %(step)s
