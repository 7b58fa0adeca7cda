-- Starts the clock of delayed runs that are due.
-- SKIP LOCKED and a limit: a pass takes what it can. Index: workflow_runs_delayed.
UPDATE workflow_runs r
SET started_at = clock_timestamp(), deadline_at = clock_timestamp() + r.deadline_seconds * interval '1 second'
FROM (SELECT id FROM workflow_runs
      WHERE state = 'running' AND started_at IS NULL AND available_at <= now() AND stop IS NULL
      ORDER BY available_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) due
WHERE r.id = due.id
RETURNING r.id
