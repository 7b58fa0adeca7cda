-- Makes a run, unless its idempotency key is taken: then no row comes back. A concurrent holder of the key is waited for.
-- The row comes back as lock_runs would read it; nobody else can see it yet.
-- Index: workflow_runs_idempotency_key.
INSERT INTO workflow_runs (id, definition_id, workflow, version, subject_id, labels, state, node_states, input,
                           idempotency_key, deadline_seconds, on_deadline, submitted_by, submitted_at, available_at,
                           started_at, deadline_at, updated_at)
VALUES (%(id)s, %(definition)s, %(workflow)s, %(version)s, %(subject)s, %(labels)s::jsonb, 'running', %(node_states)s,
        %(input)s::jsonb, %(key)s, %(deadline)s, %(on_deadline)s, %(actor)s, clock_timestamp(),
        CASE WHEN %(delay)s::float8 > 0 THEN clock_timestamp() + %(delay)s::float8 * interval '1 second' END,
        CASE WHEN %(delay)s::float8 > 0 THEN NULL ELSE clock_timestamp() END,
        CASE WHEN %(delay)s::float8 > 0 THEN NULL ELSE clock_timestamp() + %(deadline)s::float8 * interval '1 second' END,
        clock_timestamp())
ON CONFLICT (workflow, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id, definition_id, workflow, version, subject_id, state, cause, stop, node_states, pending, compensation,
          current_step, deadline_at, on_deadline, started_at, submitted_at, force_at, retries, parent_step_id,
          0::float8 AS age, labels::text AS labels_text, input::text AS input_text
