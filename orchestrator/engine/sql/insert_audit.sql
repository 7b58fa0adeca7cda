-- Changes of a run's state, in the transaction that made them.
-- Lock order: the runs first (lock_runs); the rows are new.
-- Index: none is read.
INSERT INTO workflow_audit (run_id, action, actor, role, reason, before, after)
SELECT a.run_id, a.action, a.actor, a.role, a.reason, a.before::jsonb, a.after::jsonb
FROM unnest(%(runs)s::uuid[], %(actions)s::text[], %(actors)s::text[], %(roles)s::text[], %(reasons)s::text[],
            %(befores)s::text[], %(afters)s::text[])
     AS a(run_id, action, actor, role, reason, before, after)
