-- Topics and locks that somebody waits for.
-- Lock order: none: promote_waiting looks again under their locks.
-- Index: workflow_steps_waiting (waiting_for, ready_at) WHERE state = 'waiting'.
SELECT DISTINCT waiting_for AS kind, waiting_name AS name
FROM workflow_steps
WHERE state = 'waiting' AND waiting_for IN ('topic', 'lock') AND waiting_name IS NOT NULL
LIMIT %(limit)s
