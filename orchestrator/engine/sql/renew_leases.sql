-- Heartbeat of worker processes. A lease that has run out is not renewed: its work has been given to others.
-- HOT: no index covers these columns.
-- Lock order: leases only, each renewed by its own supervisor.
-- Index: workflow_leases_pkey.
UPDATE workflow_leases
SET heartbeat_at = now(), expires_at = now() + %(seconds)s * interval '1 second'
WHERE id = ANY(%(leases)s::bigint[]) AND expires_at > now() AND ended_at IS NULL
RETURNING id
