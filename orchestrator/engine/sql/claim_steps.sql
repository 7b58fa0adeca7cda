-- Claims queued rows for the tickets that a worker holds: the claim, not the ticket, decides who runs what.
-- Rows that need a topic's slot or a lock are claimed by claim_gated.
-- A run that is stopped gives out no more steps; its compensations it does.
-- Lock order: steps only, SKIP LOCKED, so a claim waits for nobody and nobody deadlocks with it. A claim that meets a
--   cancel sees either the row still queued (and the cancel then finds it running) or no row.
-- Index: workflow_steps_queued (run_id, step, ordinal) WHERE state = 'queued'.
WITH tickets AS (
    SELECT t.run_id, t.step, max(t.most)::int AS most
    FROM unnest(%(runs)s::uuid[], %(steps)s::text[], %(limits)s::int[]) AS t(run_id, step, most)
    GROUP BY 1, 2
), picked AS (
    SELECT p.id
    FROM tickets t
    CROSS JOIN LATERAL (
        SELECT s.id
        FROM workflow_steps s
        JOIN workflow_runs r ON r.id = s.run_id
        WHERE s.run_id = t.run_id AND s.step = t.step AND s.state = 'queued'
          AND s.topic IS NULL AND s.lock_name IS NULL AND (r.stop IS NULL OR s.kind = 'compensation')
        ORDER BY s.ordinal
        LIMIT t.most
        FOR NO KEY UPDATE OF s SKIP LOCKED
    ) p
), claimed AS (
    UPDATE workflow_steps s
    SET state = 'running',
        attempt = s.attempt + 1,
        token = (random() * 9007199254740991)::bigint,
        lease_id = %(lease)s,
        worker = %(worker)s,
        progress = NULL,
        note = NULL,
        -- after a retry (no start of this round yet) the first start is a new one
        first_started_at = coalesce(CASE WHEN s.started_at IS NOT NULL THEN s.first_started_at END, clock_timestamp()),
        started_at = clock_timestamp()
    FROM picked p
    WHERE s.id = p.id
    RETURNING s.id, s.run_id, s.step, s.shard, s.ordinal, s.kind, s.attempt, s.max_attempts, s.generation, s.token,
              s.queue, s.item::text AS item_text, s.undoes_id,
              extract(epoch FROM s.started_at - s.ready_at)::float8 AS waited
)
SELECT c.*, r.definition_id, r.subject_id, r.deadline_at, r.on_deadline, r.labels::text AS labels_text,
       CASE WHEN pg_column_size(r.input) <= 4096 THEN r.input::text END AS input_text
FROM claimed c
JOIN workflow_runs r ON r.id = c.run_id
ORDER BY c.run_id, c.ordinal
