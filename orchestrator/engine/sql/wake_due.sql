-- Makes rows ready whose retry is due. A pass takes what it can, the next one the rest. A stopped run has no waiting
-- rows left.
-- Lock order: steps only, SKIP LOCKED, as claim_steps.
-- Index: workflow_steps_due (ready_at) WHERE state = 'waiting'.
WITH due AS (
    SELECT s.id
    FROM workflow_steps s
    WHERE s.state = 'waiting' AND s.ready_at <= now() AND s.waiting_for = 'retry'
    ORDER BY s.ready_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE workflow_steps s
SET state = 'queued', waiting_for = NULL
FROM due d, workflow_runs r
WHERE s.id = d.id AND r.id = s.run_id
RETURNING s.run_id, s.step, s.queue, r.definition_id, (s.topic IS NOT NULL OR s.lock_name IS NOT NULL) AS gated
