-- Ends a timer that is due. The run is locked, and a stop has closed its timers already.
-- Guard: (state, what it waits for, due). Index: workflow_steps_pkey.
UPDATE workflow_steps s
SET state = 'done', waiting_for = NULL, progress = 1, finished_at = clock_timestamp()
WHERE s.id = %(id)s AND s.state = 'waiting' AND s.waiting_for = 'timer' AND s.ready_at <= clock_timestamp()
RETURNING s.id, s.run_id, s.step, s.shard, s.kind, s.state, s.cause, s.error::text AS error_text
