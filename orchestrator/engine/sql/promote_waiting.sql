-- Queues what waits for a topic's slot or a lock, as far as there is room now, the longest-waiting first.
-- Whoever parks under the topics and locks is seen here, so no wake-up is lost.
-- Lock order: topics and locks first (lock_existing_gates), then steps of any runs, SKIP LOCKED: one that is being
--   cancelled is left alone.
-- Index: workflow_steps_topic, workflow_steps_lock.
WITH room AS (
    SELECT t.name, least(coalesce(t."limit", 2147483647) - (
               SELECT count(*) FROM workflow_steps h WHERE h.topic = t.name AND h.state = 'running'), 1000) AS n
    FROM workflow_topics t
    WHERE t.name = ANY(%(topics)s::text[])
), picked AS (
    SELECT w.id FROM room CROSS JOIN LATERAL (
        SELECT s.id FROM workflow_steps s
        WHERE s.topic = room.name AND s.state = 'waiting' AND s.waiting_for = 'topic'
        ORDER BY s.id LIMIT greatest(room.n, 0) FOR NO KEY UPDATE SKIP LOCKED
    ) w
    UNION ALL
    SELECT w.id FROM unnest(%(locks)s::text[]) AS l(name) CROSS JOIN LATERAL (
        SELECT s.id FROM workflow_steps s
        WHERE s.lock_name = l.name AND s.state = 'waiting' AND s.waiting_for = 'lock'
          AND NOT EXISTS (SELECT 1 FROM workflow_steps h WHERE h.lock_name = l.name AND h.state = 'running')
        ORDER BY s.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) w
)
UPDATE workflow_steps s
SET state = 'queued', waiting_for = NULL, waiting_name = NULL, ready_at = now()
FROM picked p, workflow_runs r
WHERE s.id = p.id AND r.id = s.run_id
RETURNING s.run_id, r.definition_id, s.step, s.queue
