-- Queued rows of tickets that need a topic's slot or a lock, oldest first.
-- Lock order: none: the claim (claim_gated) looks again.
-- Index: workflow_steps_queued (run_id, step, ordinal) WHERE state = 'queued'.
SELECT s.id, s.run_id, s.step, s.kind, s.topic, s.lock_name, r.definition_id
FROM unnest(%(runs)s::uuid[], %(steps)s::text[], %(limits)s::int[]) AS t(run_id, step, most)
CROSS JOIN LATERAL (
    SELECT q.id, q.run_id, q.step, q.kind, q.topic, q.lock_name
    FROM workflow_steps q
    WHERE q.run_id = t.run_id AND q.step = t.step AND q.state = 'queued'
      AND (q.topic IS NOT NULL OR q.lock_name IS NOT NULL)
    ORDER BY q.ordinal
    LIMIT t.most
) s
JOIN workflow_runs r ON r.id = s.run_id
