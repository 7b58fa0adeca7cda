-- Takes running rows from a lease without closing them: the sweep finds them as if their process were gone.
-- Lock order: steps only, of the worker process that calls, so nobody waits for it while it holds another row.
-- Index: workflow_steps_pkey.
UPDATE workflow_steps SET lease_id = 0 WHERE id = ANY(%(rows)s) AND lease_id = %(lease)s AND state = 'running'
