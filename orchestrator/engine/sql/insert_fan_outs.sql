-- Counters of small fan-outs, of any runs; their rows come with insert_steps.
-- Lock order: the runs first (lock_runs); the rows are new.
-- Index: none is read.
INSERT INTO workflow_fan_outs (run_id, step, total, open, "window", join_due_at)
SELECT f.run_id, f.step, f.total, f.total, f.released, clock_timestamp() + f.join_timeout * interval '1 second'
FROM unnest(%(runs)s::uuid[], %(steps)s::text[], %(totals)s::int[], %(windows)s::int[],
            %(join_timeouts)s::float8[]) AS f(run_id, step, total, released, join_timeout)
