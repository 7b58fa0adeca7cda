-- Closes attempts: the one statement that takes a row out of `running`, whatever ended the attempt.
-- Guard: (state, attempt, token). A row that does not match was closed by somebody else, and nothing happens to it.
-- `r.stop` is what it will be when this commits, since the runs are locked: after a stop no failed attempt is tried
--   again, and after a cancel or a passed deadline nothing fails any more, it is cancelled.
-- A wait without a delay is one for the child runs that the handler has submitted.
-- The counters of the fan-outs go down by the rows really changed, aggregated (a row is updated once a statement).
-- Lock order: the runs first (lock_runs), then their steps; fan-outs are guarded by the lock of their run.
-- Index: workflow_steps_pkey, workflow_fan_outs_run_step_key. (`was` comes from a materialised row so that the planner
--   does not take the small but churning index of running rows instead of the key.)
WITH closing AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(attempts)s::int[], %(tokens)s::bigint[], %(states)s::text[], %(causes)s::text[],
        %(delays)s::float8[], %(outputs)s::text[], %(refs)s::text[], %(errors)s::text[]
    ) AS c(id, attempt, token, state, cause, delay, output, ref, error)
), decided AS MATERIALIZED (
    SELECT s.id, c.attempt, c.token, 'running'::text AS was, c.cause, c.delay, c.output, c.ref, c.error,
           CASE WHEN r.stop IS NULL OR s.kind = 'compensation' OR c.state IN ('done', 'skipped')
                  OR (c.state = 'waiting' AND c.delay IS NULL) OR (r.stop = 'failure' AND c.state = 'failed')
                THEN c.state ELSE 'cancelled' END AS state,
           r.stop
    FROM closing c
    JOIN workflow_steps s ON s.id = c.id
    JOIN workflow_runs r ON r.id = s.run_id
), changed AS (
    UPDATE workflow_steps s
    SET state = l.state,
        cause = CASE l.state
                WHEN 'cancelled' THEN CASE l.stop WHEN 'failure' THEN 'blocked' WHEN 'cancel' THEN 'cancelled'
                                                  ELSE 'deadline' END
                ELSE l.cause END,
        waiting_for = CASE WHEN l.state <> 'waiting' THEN NULL WHEN l.delay IS NULL THEN 'children' ELSE 'retry' END,
        waiting_name = CASE WHEN l.state = 'waiting' AND l.delay IS NULL THEN 'started' END,
        ready_at = CASE l.state WHEN 'waiting' THEN now() + l.delay * interval '1 second' ELSE s.ready_at END,
        output = l.output::jsonb,
        output_ref = l.ref,
        error = coalesce(l.error::jsonb, CASE WHEN l.state = 'done' THEN NULL ELSE s.error END),
        progress = CASE l.state WHEN 'done' THEN 1 WHEN 'waiting' THEN NULL ELSE s.progress END,
        token = NULL,
        lease_id = NULL,
        finished_at = CASE WHEN l.state <> 'waiting' THEN clock_timestamp() END
    FROM decided l
    WHERE s.id = l.id AND s.state = l.was AND s.attempt = l.attempt AND s.token = l.token
    RETURNING s.id, s.run_id, s.step, s.shard, s.kind, s.state, s.cause, s.attempt, s.started_at, s.ready_at, s.worker,
              s.undoes_id, s.undoes_steps, s.error::text AS error_text, s.topic, s.lock_name
), closed AS (
    SELECT run_id, step, count(*) AS n,
           count(*) FILTER (WHERE state = 'done') AS done,
           count(*) FILTER (WHERE state = 'skipped') AS skipped,
           count(*) FILTER (WHERE state IN ('failed', 'rejected')) AS failed,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM changed
    WHERE state <> 'waiting' AND kind = 'step' AND shard <> ''
    GROUP BY run_id, step
), counted AS (
    UPDATE workflow_fan_outs f
    SET open = f.open - c.n, done = f.done + c.done, skipped = f.skipped + c.skipped, failed = f.failed + c.failed,
        cancelled = f.cancelled + c.cancelled
    FROM closed c
    WHERE f.run_id = c.run_id AND f.step = c.step
    RETURNING f.run_id, f.step, f.total, f.open, f.done, f.skipped, f.failed, f.cancelled, f."window", c.n AS closed
)
SELECT ch.*, co.total, co.open, co.done, co.skipped, co.failed, co.cancelled, co."window", co.closed
FROM changed ch
LEFT JOIN counted co ON co.run_id = ch.run_id AND co.step = ch.step
