-- Gives back rows that were claimed and never begun: queued again, the attempt not spent.
-- Guard: (state, attempt, token).
-- Lock order: the runs first (lock_runs), then their steps.
-- Index: workflow_steps_pkey. (`was` comes as an array so that the planner does not take the small but churning index
--   of running rows instead of the key.)
UPDATE workflow_steps s
SET state = 'queued', attempt = s.attempt - 1, token = NULL, lease_id = NULL, ready_at = now(),
    started_at = CASE WHEN s.attempt > 1 THEN s.started_at END,
    first_started_at = CASE WHEN s.attempt > 1 THEN s.first_started_at END
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(tokens)s::bigint[],
            array_fill('running'::text, ARRAY[cardinality(%(ids)s::bigint[])])) AS c(id, attempt, token, was)
WHERE s.id = c.id AND s.state = c.was AND s.attempt = c.attempt AND s.token = c.token
RETURNING s.id, s.run_id, s.step, s.queue, (s.topic IS NOT NULL OR s.lock_name IS NOT NULL) AS gated
