-- Increments of counters, appended where they happen and folded later: a late commit is never missed.
-- Lock order: none: a row to each increment, so that no two transactions wait for one counter.
-- Index: none is read.
INSERT INTO workflow_rollup_deltas (metric, labels, value)
SELECT m.metric, m.labels::jsonb, m.value
FROM unnest(%(metrics)s::text[], %(labels)s::text[], %(values)s::float8[]) AS m(metric, labels, value)
