-- Running attempts whose worker process has no live lease: killed, its host gone, or paused past its lease.
-- Lock order: none: settle_steps decides by the fence who is first.
-- Index: workflow_steps_leased (lease_id) WHERE state = 'running'; workflow_leases_pkey.
SELECT s.id, s.run_id, s.step, s.attempt, s.max_attempts, s.token, s.worker
FROM workflow_steps s
LEFT JOIN workflow_leases l ON l.id = s.lease_id
WHERE s.state = 'running' AND (l.id IS NULL OR l.expires_at < now() OR l.ended_at IS NOT NULL)
ORDER BY s.id
LIMIT %(limit)s
