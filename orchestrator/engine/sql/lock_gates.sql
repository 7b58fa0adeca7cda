-- Locks the rows of topics and locks, making those that are new, before what holds them is counted: counting and
-- claiming in one statement let two through a limit of one.
-- A topic's limit comes from the definition until somebody sets it at run time.
-- Lock order: after runs: topics by name, then locks by name.
-- Index: workflow_topics_pkey, workflow_locks_pkey.
WITH topics AS (
    INSERT INTO workflow_topics (name, "limit", set_by)
    SELECT t.name, t.most, ''
    FROM (SELECT name, max(most) AS most FROM unnest(%(topics)s::text[], %(limits)s::int[]) AS t(name, most)
          GROUP BY name ORDER BY name) t
    ON CONFLICT (name) DO UPDATE
    SET "limit" = CASE WHEN workflow_topics.set_by = '' THEN excluded."limit" ELSE workflow_topics."limit" END
    RETURNING name
), locks AS (
    INSERT INTO workflow_locks (name)
    SELECT DISTINCT l.name FROM unnest(%(locks)s::text[]) AS l(name) ORDER BY l.name
    ON CONFLICT (name) DO UPDATE SET name = excluded.name
    RETURNING name
)
SELECT (SELECT count(*) FROM topics) + (SELECT count(*) FROM locks) AS n
