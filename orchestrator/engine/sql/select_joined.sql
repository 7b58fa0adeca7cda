-- Steps that wait for children, all of whose children have ended.
-- Lock order: none: end_unclaimed decides by its guard who is first.
-- Index: workflow_steps_waiting (waiting_for, ready_at) WHERE state = 'waiting'; workflow_runs_child.
SELECT s.id, s.run_id
FROM workflow_steps s
WHERE s.state = 'waiting' AND s.waiting_for = 'children' AND s.waiting_name = 'started'
  AND NOT EXISTS (SELECT 1 FROM workflow_runs c
                  WHERE c.parent_step_id = s.id AND c.state IN ('running', 'compensating'))
ORDER BY s.id
LIMIT %(limit)s
