-- Claims rows that need a topic's slot or a lock, as far as there is room; what finds none is parked (it holds no
-- worker and is woken when room appears) or, where its policy says so, handed back as refused.
-- This statement sees every claim that was committed under the topics and locks: room is counted from the live claims,
--   so nothing can leak and nothing can be released twice.
-- Lock order: topics and locks first (lock_gates), then steps, SKIP LOCKED.
-- Index: workflow_steps_pkey, workflow_steps_topic, workflow_steps_lock.
WITH candidates AS (
    SELECT s.id, s.topic, s.lock_name, coalesce(r.on_lock_conflict, i.policy) AS policy
    FROM unnest(%(ids)s::bigint[], %(policies)s::text[]) AS i(id, policy)
    JOIN workflow_steps s ON s.id = i.id
    JOIN workflow_runs r ON r.id = s.run_id
    WHERE s.state = 'queued' AND (r.stop IS NULL OR s.kind = 'compensation')
    ORDER BY s.id
    FOR NO KEY UPDATE OF s SKIP LOCKED
), by_lock AS (
    SELECT c.*,
           c.lock_name IS NULL
           OR (row_number() OVER (PARTITION BY c.lock_name ORDER BY c.id) = 1
               AND NOT EXISTS (SELECT 1 FROM workflow_steps h WHERE h.lock_name = c.lock_name AND h.state = 'running'))
           AS lock_free
    FROM candidates c
), by_topic AS (
    SELECT l.*,
           l.topic IS NULL
           OR row_number() OVER (PARTITION BY l.topic, l.lock_free ORDER BY l.id)
              <= coalesce(t."limit", 2147483647)
                 - (SELECT count(*) FROM workflow_steps h WHERE h.topic = l.topic AND h.state = 'running')
           AS topic_free
    FROM by_lock l
    LEFT JOIN workflow_topics t ON t.name = l.topic
), claimed AS (
    UPDATE workflow_steps s
    SET state = 'running', attempt = s.attempt + 1, token = (random() * 9007199254740991)::bigint,
        lease_id = %(lease)s, worker = %(worker)s, progress = NULL, note = NULL,
        -- after a retry (no start of this round yet) the first start is a new one
        first_started_at = coalesce(CASE WHEN s.started_at IS NOT NULL THEN s.first_started_at END, clock_timestamp()),
        started_at = clock_timestamp()
    FROM by_topic b
    WHERE s.id = b.id AND b.lock_free AND b.topic_free
    RETURNING s.id, s.run_id, s.step, s.shard, s.ordinal, s.kind, s.attempt, s.max_attempts, s.generation, s.token,
              s.queue, s.item::text AS item_text, s.undoes_id,
              extract(epoch FROM s.started_at - s.ready_at)::float8 AS waited
), parked AS (
    UPDATE workflow_steps s
    SET state = 'waiting', waiting_for = CASE WHEN b.lock_free THEN 'topic' ELSE 'lock' END,
        waiting_name = CASE WHEN b.lock_free THEN b.topic ELSE b.lock_name END, ready_at = NULL
    FROM by_topic b
    WHERE s.id = b.id AND NOT (b.lock_free AND b.topic_free) AND (b.lock_free OR b.policy = 'requeue')
    RETURNING s.id
)
SELECT c.*, r.definition_id, r.subject_id, r.deadline_at, r.on_deadline, r.labels::text AS labels_text,
       CASE WHEN pg_column_size(r.input) <= 4096 THEN r.input::text END AS input_text, NULL AS refused
FROM claimed c
JOIN workflow_runs r ON r.id = c.run_id
UNION ALL
SELECT s.id, s.run_id, s.step, s.shard, s.ordinal, s.kind, s.attempt, s.max_attempts, s.generation, NULL, s.queue, NULL,
       s.undoes_id, 0, r.definition_id, r.subject_id, r.deadline_at, r.on_deadline, NULL, NULL, b.policy
FROM by_topic b
JOIN workflow_steps s ON s.id = b.id
JOIN workflow_runs r ON r.id = s.run_id
WHERE NOT b.lock_free AND b.policy <> 'requeue'
