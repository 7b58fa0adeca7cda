-- For the doctor: the counters of a run's fan-outs from the rows of its shards; a counter row that is missing is made.
-- Lock order: the run first (lock_runs), then its fan-outs.
-- Index: workflow_steps_run_step_shard_key, workflow_fan_outs_run_step_key.
INSERT INTO workflow_fan_outs (run_id, step, total, open, done, skipped, failed, cancelled, "window")
SELECT s.run_id, s.step, count(*),
       count(*) FILTER (WHERE s.state IN ('pending', 'queued', 'running', 'waiting')),
       count(*) FILTER (WHERE s.state = 'done'),
       count(*) FILTER (WHERE s.state = 'skipped'),
       count(*) FILTER (WHERE s.state IN ('failed', 'rejected')),
       count(*) FILTER (WHERE s.state = 'cancelled'),
       greatest(count(*) FILTER (WHERE s.state IN ('queued', 'running', 'waiting')), 1)
FROM workflow_steps s
WHERE s.run_id = %(run)s AND s.kind = 'step' AND s.shard <> ''
GROUP BY s.run_id, s.step
ON CONFLICT (run_id, step) DO UPDATE
SET total = excluded.total, open = excluded.open, done = excluded.done, skipped = excluded.skipped,
    failed = excluded.failed, cancelled = excluded.cancelled
