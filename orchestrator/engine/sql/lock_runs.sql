-- Locks the runs that a transaction is about to change, and reads what deciding needs.
-- Every transaction that closes, opens or stops steps starts here, so the joins of a run are decided by one transaction
--   at a time (a single statement cannot: its parts share a snapshot).
-- NO KEY: inserting rows that refer to the run is not held up.
-- Lock order: runs by id, before any other row.
-- Index: workflow_runs_pkey.
SELECT r.id, r.definition_id, r.workflow, r.version, r.subject_id, r.state, r.cause, r.stop, r.node_states, r.pending,
       r.compensation, r.current_step, r.deadline_at, r.on_deadline, r.started_at, r.submitted_at, r.force_at,
       r.retries, extract(epoch FROM clock_timestamp() - coalesce(r.started_at, r.submitted_at))::float8 AS age,
       r.parent_step_id, r.lock_name, r.labels::text AS labels_text,
       CASE WHEN pg_column_size(r.input) <= 4096 THEN r.input::text END AS input_text
FROM workflow_runs r
WHERE r.id = ANY(%(runs)s::uuid[])
ORDER BY r.id
FOR NO KEY UPDATE OF r
