-- A stopped run, ended or held before its undo, goes on (an audited retry): a new deadline of the original length,
-- from now.
-- An undo that is incomplete stays noted until its dead letters are replayed or settled.
-- Lock order: the run, locked already (lock_runs).
-- Index: workflow_runs_pkey.
UPDATE workflow_runs
SET state = 'running', stop = NULL, cause = NULL, error = NULL, output = NULL, output_ref = NULL,
    compensation = CASE compensation WHEN 'partial' THEN 'partial' END,
    node_states = %(node_states)s, retries = retries + 1, finished_at = NULL, stopped_at = NULL, force_at = NULL,
    cancel_requested_at = NULL, hold_until = NULL, exclusive_key = %(key)s, deadline_missed_at = NULL,
    started_at = coalesce(started_at, clock_timestamp()),
    deadline_at = clock_timestamp() + deadline_seconds * interval '1 second', updated_at = clock_timestamp()
WHERE id = %(run)s AND state IN ('failed', 'cancelled', 'compensating')
