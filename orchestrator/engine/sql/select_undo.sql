-- How far the undo of a run has come: released and open, not yet released, failed.
-- Lock order: none: the run is locked (lock_runs), so no other attempt of it ends meanwhile.
-- Index: workflow_steps_run_step_shard_key.
SELECT count(*) FILTER (WHERE state IN ('queued', 'running', 'waiting')) AS released,
       count(*) FILTER (WHERE state = 'pending') AS pending,
       count(*) FILTER (WHERE state IN ('failed', 'cancelled')) AS failed
FROM workflow_steps
WHERE run_id = %(run)s AND kind = 'compensation'
