-- Adds a batch of increments to the counters and deletes them, so that a reader sees each exactly once. What the charts
-- show is also kept by the hour, for five weeks.
-- Lock order: the increments taken, SKIP LOCKED, then the counters in the order of (metric, labels).
-- Index: workflow_rollup_deltas_pkey, workflow_rollups_metric_labels_key, workflow_rollup_hours_hour_metric_key.
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
), hourly AS (
    INSERT INTO workflow_rollup_hours (metric, labels, hour, value)
    SELECT metric, labels, date_trunc('hour', now(), 'UTC'), value FROM summed
    WHERE metric IN ('workflow_run_duration_seconds_bucket', 'workflow_steps_waiting_seconds_bucket')
    ORDER BY metric, labels
    ON CONFLICT (hour, metric, labels) DO UPDATE SET value = workflow_rollup_hours.value + EXCLUDED.value
), old AS (
    DELETE FROM workflow_rollup_hours WHERE hour < now() - interval '35 days'
)
SELECT coalesce(sum(increments), 0)::bigint AS folded FROM summed
