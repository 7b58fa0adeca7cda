-- For a retry: rows that are to run again become pending, attempts go on with a fresh budget; one that was undone gets
-- a new generation and with it a new idempotency key. A step that starts a child run (it has no attempts) goes on with
-- the child that it had if that ended badly, and starts a new one if it was done.
-- What has started and was not undone is to be undone still, even if the run stops before it starts again.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_steps_pkey.
UPDATE workflow_steps s
SET state = 'pending', cause = NULL, error = NULL, output = NULL, output_ref = NULL, progress = NULL, note = NULL,
    waiting_name = NULL,
    finished_at = NULL, started_at = NULL,
    first_started_at = CASE WHEN s.undone_at IS NULL THEN s.first_started_at END,
    generation = s.generation + CASE WHEN s.attempt = 0 AND s.kind = 'step' THEN (s.state = 'done')::int
                                     WHEN s.undone_at IS NULL THEN 0 ELSE 1 END,
    undone_at = NULL,
    max_attempts = s.attempt + 1 + b.retries
FROM unnest(%(steps)s::text[], %(retries)s::int[]) AS b(step, retries)
WHERE s.id = ANY(%(rows)s::bigint[]) AND s.step = b.step
RETURNING s.step
