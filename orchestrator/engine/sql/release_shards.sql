-- Releases the next shards of a fan-out as others close, so that at most `window` are out at once; after a retry, also
-- the rows of a step that has become ready again.
-- The run is locked. Index: workflow_steps_pending (run_id, step, ordinal) WHERE state = 'pending'.
UPDATE workflow_steps s
SET state = 'queued', ready_at = now()
FROM unnest(%(runs)s::uuid[], %(steps)s::text[], %(counts)s::int[]) AS t(run_id, step, most)
CROSS JOIN LATERAL (
    SELECT p.id FROM workflow_steps p
    WHERE p.run_id = t.run_id AND p.step = t.step AND p.state = 'pending'
    ORDER BY p.ordinal
    LIMIT t.most
) p
WHERE s.id = p.id
RETURNING s.run_id, s.step, s.queue
