-- Notes on queued rows of a step that a worker took their ticket and has no handler for them; the claim clears it.
-- A few rows are enough to be seen; a row that is being claimed right now is left alone.
-- Lock order: steps only, SKIP LOCKED, as claim_steps.
-- Index: workflow_steps_queued (run_id, step, ordinal) WHERE state = 'queued'.
UPDATE workflow_steps s
SET note = %(note)s
FROM (SELECT q.id FROM workflow_steps q
      WHERE q.run_id = %(run)s AND q.step = %(step)s AND q.state = 'queued'
      ORDER BY q.ordinal LIMIT 64 FOR NO KEY UPDATE SKIP LOCKED) p
WHERE s.id = p.id AND s.note IS DISTINCT FROM %(note)s
