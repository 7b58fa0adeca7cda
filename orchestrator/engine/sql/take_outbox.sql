-- The oldest tickets to publish. Deleted here, pushed to Redis, then committed: a crash between publishes them again
-- under the same ids, which changes nothing.
-- Lock order: the tickets taken, SKIP LOCKED: each relay takes others.
-- Index: workflow_outbox_pkey.
DELETE FROM workflow_outbox o
USING (SELECT id FROM workflow_outbox ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) taken
WHERE o.id = taken.id
RETURNING o.id, o.run_id, o.step, o.queue, o.tickets, o.gated, o.definition_id
