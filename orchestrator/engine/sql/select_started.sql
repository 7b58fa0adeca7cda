-- What a run has started and not yet undone, latest start first: the order of the undo.
-- Lock order: none: the run is locked (lock_runs), and nothing of it is open.
-- Index: workflow_steps_run_step_shard_key.
SELECT s.id, s.step, s.shard, s.item::text AS item_text
FROM workflow_steps s
WHERE s.run_id = %(run)s AND s.kind = 'step' AND s.first_started_at IS NOT NULL AND s.undone_at IS NULL
ORDER BY s.first_started_at DESC, s.id DESC
