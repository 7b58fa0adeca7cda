-- Ends rows that no worker holds: a lock refused, a timer or approval that is over, children that have ended, a step
-- that a person skips. No attempt is spent.
-- An attempt that had handed over to children ends here too, and goes into the history like any other that did not
-- succeed; one that ended before it waited for something else is there already.
-- Guard: the state they are ended from and, where given, what they wait for.
-- Lock order: the runs first (lock_runs), then their steps; fan-outs are guarded by the lock of their run.
-- Index: workflow_steps_pkey, workflow_fan_outs_run_step_key, workflow_attempts_step_attempt_key.
WITH changed AS (
    UPDATE workflow_steps s
    SET state = e.state, cause = e.cause,
        error = CASE e.state WHEN 'done' THEN NULL ELSE coalesce(e.error::jsonb, s.error) END,
        output = coalesce(e.output::jsonb, s.output), waiting_for = NULL, waiting_name = NULL,
        progress = CASE e.state WHEN 'done' THEN 1 ELSE s.progress END, finished_at = clock_timestamp()
    FROM unnest(%(ids)s::bigint[], %(states)s::text[], %(causes)s::text[], %(errors)s::text[], %(outputs)s::text[])
         AS e(id, state, cause, error, output)
    WHERE s.id = e.id AND s.state = ANY(%(was)s::text[])
      AND (%(waits)s::text IS NULL OR s.waiting_for = %(waits)s::text)
    RETURNING s.id, s.run_id, s.step, s.shard, s.kind, s.state, s.cause, s.attempt, s.undoes_id, s.undoes_steps,
              s.error, s.worker, s.started_at, s.error::text AS error_text, s.output::text AS output_text, s.output_ref
), told AS (
    INSERT INTO workflow_attempts (run_id, step_row_id, attempt, cause, error, worker, started_at, finished_at)
    SELECT c.run_id, c.id, c.attempt, c.cause, c.error, c.worker, c.started_at, clock_timestamp()
    FROM changed c
    WHERE c.attempt > 0 AND c.state IN ('failed', 'cancelled')
    ON CONFLICT (step_row_id, attempt) DO NOTHING
), closed AS (
    SELECT run_id, step, count(*) AS n, count(*) FILTER (WHERE state = 'done') AS done,
           count(*) FILTER (WHERE state = 'skipped') AS skipped,
           count(*) FILTER (WHERE state IN ('failed', 'rejected')) AS failed,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM changed WHERE kind = 'step' AND shard <> '' GROUP BY run_id, step
), counted AS (
    UPDATE workflow_fan_outs f
    SET open = f.open - c.n, done = f.done + c.done, skipped = f.skipped + c.skipped, failed = f.failed + c.failed,
        cancelled = f.cancelled + c.cancelled
    FROM closed c
    WHERE f.run_id = c.run_id AND f.step = c.step
    RETURNING f.run_id, f.step, f.total, f.open, f.done, f.skipped, f.failed, f.cancelled, f."window", c.n AS closed
)
SELECT ch.id, ch.run_id, ch.step, ch.shard, ch.kind, ch.state, ch.cause, ch.attempt, ch.undoes_id, ch.undoes_steps,
       ch.error_text, ch.output_text, ch.output_ref, co.total, co.open, co.done, co.skipped, co.failed,
       co.cancelled, co."window", co.closed
FROM changed ch
LEFT JOIN counted co ON co.run_id = ch.run_id AND co.step = ch.step
