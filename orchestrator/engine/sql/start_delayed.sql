-- Starts the clock of runs that waited to start and may now: their delay is over, the runs they come after have ended,
-- and no run submitted before them holds what they exclude. In the order of submission; a pass takes what it can.
-- Lock order: runs by id, SKIP LOCKED, so a pass waits for nobody.
-- Index: workflow_runs_delayed, workflow_runs_exclusive, workflow_runs_pkey.
WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at)
UPDATE workflow_runs r
SET started_at = m.at, deadline_at = m.at + r.deadline_seconds * interval '1 second'
FROM moment m, (SELECT w.id FROM workflow_runs w
      WHERE w.state = 'running' AND w.started_at IS NULL AND w.stop IS NULL
        AND (w.available_at IS NULL OR w.available_at <= now())
        AND NOT EXISTS (SELECT 1 FROM workflow_runs a
                        WHERE a.id = ANY(w.after_runs) AND a.state IN ('running', 'compensating'))
        AND NOT EXISTS (SELECT 1 FROM workflow_runs e WHERE e.exclusive_key = w.exclusive_key AND e.id < w.id)
      ORDER BY w.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) due
WHERE r.id = due.id
RETURNING r.id
