-- Ends rows that lost a lock and whose policy is not to wait: `rejected`, no attempt spent. Their runs are locked.
-- Guard: still queued. Index: workflow_steps_pkey, workflow_fan_outs_run_step_key.
WITH changed AS (
    UPDATE workflow_steps s
    SET state = 'rejected', cause = 'lock', error = e.error::jsonb, finished_at = clock_timestamp()
    FROM unnest(%(ids)s::bigint[], %(errors)s::text[]) AS e(id, error)
    WHERE s.id = e.id AND s.state = 'queued'
    RETURNING s.id, s.run_id, s.step, s.shard, s.kind, s.state, s.cause, s.attempt, s.undoes_id, s.undoes_steps,
              s.error::text AS error_text
), closed AS (
    SELECT run_id, step, count(*) AS n FROM changed WHERE kind = 'step' AND shard <> '' GROUP BY run_id, step
), counted AS (
    UPDATE workflow_fan_outs f
    SET open = f.open - c.n, failed = f.failed + c.n
    FROM closed c
    WHERE f.run_id = c.run_id AND f.step = c.step
    RETURNING f.run_id, f.step, f.total, f.open, f.done, f.skipped, f.failed, f.cancelled
)
SELECT ch.*, co.total, co.open, co.done, co.skipped, co.failed, co.cancelled
FROM changed ch
LEFT JOIN counted co ON co.run_id = ch.run_id AND co.step = ch.step
