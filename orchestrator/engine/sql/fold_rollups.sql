-- Purpose: adds a batch of increments to the counters and deletes them, so that a reader sees each exactly once.
-- Locks: the increments taken (skipping those of another folder), then the counters in the order of (metric, labels).
-- Index: primary key of workflow_rollup_deltas; workflow_rollups_metric_labels_key.
WITH batch AS (
    SELECT id FROM workflow_rollup_deltas ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM workflow_rollup_deltas d USING batch WHERE d.id = batch.id
    RETURNING d.metric, d.labels, d.value
), summed AS (
    SELECT metric, labels, sum(value) AS value, count(*) AS increments FROM taken GROUP BY metric, labels
), added AS (
    INSERT INTO workflow_rollups (metric, labels, value)
    SELECT metric, labels, value FROM summed ORDER BY metric, labels
    ON CONFLICT (metric, labels) DO UPDATE SET value = workflow_rollups.value + EXCLUDED.value
)
SELECT coalesce(sum(increments), 0)::bigint AS folded FROM summed
