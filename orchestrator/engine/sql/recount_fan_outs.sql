-- After a retry has made shards pending again: the counters of the run's fan-outs, from its rows.
-- Lock order: the run first (lock_runs), then its fan-outs.
-- Index: workflow_steps_run_step_shard_key, workflow_fan_outs_run_step_key.
UPDATE workflow_fan_outs f
SET open = c.open, done = c.done, skipped = c.skipped, failed = c.failed, cancelled = c.cancelled
FROM (SELECT s.step,
             count(*) FILTER (WHERE s.state IN ('pending', 'queued', 'running', 'waiting')) AS open,
             count(*) FILTER (WHERE s.state = 'done') AS done,
             count(*) FILTER (WHERE s.state = 'skipped') AS skipped,
             count(*) FILTER (WHERE s.state IN ('failed', 'rejected')) AS failed,
             count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled
      FROM workflow_steps s
      WHERE s.run_id = %(run)s AND s.kind = 'step' AND s.shard <> ''
      GROUP BY s.step) c
WHERE f.run_id = %(run)s AND f.step = c.step
