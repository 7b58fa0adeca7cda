"""Topics and locks hold over the whole fleet. Both are counted from the claims, as the engine does."""

from __future__ import annotations

from orchestrator.engine.db import Connection
from orchestrator.engine.doctor.look import Broken, Scope, find

# A limit that was lowered does not stop what runs. So it was broken only if somebody started after it was set: all that
# run now ran at the latest start too. Definitions of several versions may give several limits; the highest counts.
_TOPICS = """
SELECT t.name, m.most, count(*) AS running
FROM workflow_topics t
JOIN workflow_steps s ON s.topic = t.name AND s.state = 'running'
CROSS JOIN LATERAL (
    SELECT CASE WHEN t.set_by <> '' THEN t."limit" ELSE greatest(t."limit", (
        SELECT max((n->'topic'->>'limit')::int)
        FROM workflow_definitions d, jsonb_array_elements(d.spec->'steps') n
        WHERE n->'topic'->>'name' = t.name)) END AS most
) m
WHERE t."limit" IS NOT NULL
GROUP BY t.name, t.updated_at, m.most
HAVING count(*) > m.most AND max(s.started_at) > t.updated_at
LIMIT %(limit)s
"""


def topics(conn: Connection, scope: Scope) -> list[Broken]:
    """No more attempts of a topic run than its limit allows."""
    return [
        Broken("topics", row.name, f"{row.running} attempts run, the limit is {row.most}")
        for row in find(conn, scope, _TOPICS)
    ]


_LOCKS = """
SELECT s.lock_name, count(*) AS holders, (array_agg(s.id ORDER BY s.id))[1:5] AS ids
FROM workflow_steps s
WHERE s.lock_name IS NOT NULL AND s.state = 'running'
GROUP BY s.lock_name HAVING count(*) > 1
LIMIT %(limit)s
"""


def locks(conn: Connection, scope: Scope) -> list[Broken]:
    """A lock has one holder."""
    return [
        Broken("locks", row.lock_name, f"{row.holders} attempts hold it: step rows {', '.join(map(str, row.ids))}")
        for row in find(conn, scope, _LOCKS)
    ]
