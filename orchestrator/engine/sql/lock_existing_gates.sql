-- Locks topics and locks that exist, before their waiters are promoted.
-- Lock order: as lock_gates: topics by name, then locks by name.
-- Index: workflow_topics_pkey, workflow_locks_pkey.
SELECT (SELECT count(*) FROM (SELECT 1 FROM workflow_topics WHERE name = ANY(%(topics)s::text[])
                              ORDER BY name FOR NO KEY UPDATE) t)
     + (SELECT count(*) FROM (SELECT 1 FROM workflow_locks WHERE name = ANY(%(locks)s::text[])
                              ORDER BY name FOR NO KEY UPDATE) l) AS n
