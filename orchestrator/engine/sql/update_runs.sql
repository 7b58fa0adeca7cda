-- Writes what was decided about locked runs: their steps' letters, open rows, states. The first cause and the first
-- error stay.
-- Lock order: the runs, locked already (lock_runs).
-- Index: workflow_runs_pkey.
UPDATE workflow_runs r
SET node_states = u.node_states,
    pending = r.pending + u.delta,
    current_step = coalesce(u.current_step, r.current_step),
    state = coalesce(u.state, r.state),
    cause = coalesce(r.cause, u.cause),
    error = coalesce(r.error, u.error::jsonb),
    stop = coalesce(r.stop, u.stop),
    stopped_at = CASE WHEN r.stop IS NULL AND u.stop IS NOT NULL THEN clock_timestamp() ELSE r.stopped_at END,
    compensation = coalesce(u.compensation, r.compensation),
    output = coalesce(u.output::jsonb, r.output),
    output_ref = coalesce(u.output_ref, r.output_ref),
    hold_until = CASE WHEN u.hold > 0 THEN clock_timestamp() + u.hold * interval '1 second'
                      WHEN u.hold = 0 THEN NULL ELSE r.hold_until END,
    updated_at = clock_timestamp(),
    exclusive_key = CASE WHEN u.state IN ('done', 'failed', 'cancelled') THEN NULL ELSE r.exclusive_key END,
    finished_at = CASE WHEN u.state IN ('done', 'failed', 'cancelled') THEN clock_timestamp() ELSE r.finished_at END
FROM unnest(
    %(runs)s::uuid[], %(node_states)s::text[], %(deltas)s::int[], %(current_steps)s::text[], %(states)s::text[],
    %(causes)s::text[], %(errors)s::text[], %(stops)s::text[], %(compensations)s::text[], %(outputs)s::text[],
    %(output_refs)s::text[], %(holds)s::float8[]
) AS u(id, node_states, delta, current_step, state, cause, error, stop, compensation, output, output_ref, hold)
WHERE r.id = u.id
