-- Releases the next shards of a fan-out as others close, so that at most `window` are out at once; after a retry, also
-- the rows of a step that has become ready again. Shards that are child runs wait for those instead of a worker.
-- Lock order: the runs first (lock_runs), then their steps.
-- Index: workflow_steps_pending (run_id, step, ordinal) WHERE state = 'pending'.
UPDATE workflow_steps s
SET state = t.state, waiting_for = CASE t.state WHEN 'waiting' THEN 'children' END, waiting_name = NULL,
    ready_at = CASE t.state WHEN 'queued' THEN now() END
FROM unnest(%(runs)s::uuid[], %(steps)s::text[], %(counts)s::int[], %(states)s::text[]) AS t(run_id, step, most, state)
CROSS JOIN LATERAL (
    SELECT p.id FROM workflow_steps p
    WHERE p.run_id = t.run_id AND p.step = t.step AND p.state = 'pending'
    ORDER BY p.ordinal
    LIMIT t.most
) p
WHERE s.id = p.id
RETURNING s.run_id, s.step, s.queue
