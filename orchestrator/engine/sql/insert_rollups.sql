-- Increments of counters, appended where they happen and folded later: a late commit is never missed.
INSERT INTO workflow_rollup_deltas (metric, labels, value)
SELECT m.metric, m.labels::jsonb, m.value
FROM unnest(%(metrics)s::text[], %(labels)s::text[], %(values)s::float8[]) AS m(metric, labels, value)
