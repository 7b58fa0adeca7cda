-- Counters of small fan-outs, of any runs; their rows come with insert_steps.
INSERT INTO workflow_fan_outs (run_id, step, total, open, "window")
SELECT f.run_id, f.step, f.total, f.total, f.released
FROM unnest(%(runs)s::uuid[], %(steps)s::text[], %(totals)s::int[], %(windows)s::int[]) AS f(run_id, step, total, released)
