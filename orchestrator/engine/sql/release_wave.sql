-- Queues the next wave of a run's compensations.
-- Lock order: the run first (lock_runs), then its steps.
-- Index: workflow_steps_pending (run_id, step, ordinal) WHERE state = 'pending'.
UPDATE workflow_steps s
SET state = 'queued', ready_at = now()
WHERE s.run_id = %(run)s AND s.kind = 'compensation' AND s.state = 'pending'
  AND s.ordinal = (SELECT min(n.ordinal) FROM workflow_steps n
                   WHERE n.run_id = %(run)s AND n.kind = 'compensation' AND n.state = 'pending')
RETURNING s.step, s.queue
