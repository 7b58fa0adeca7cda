"""What running handlers say of themselves: progress, notes, log lines, calls to the outside. No states."""

from __future__ import annotations

from typing import Any

from orchestrator.engine.db import Connection, put

_WRITE = """
UPDATE workflow_steps s
SET progress = coalesce(r.progress, s.progress), note = coalesce(r.note, s.note),
    external = CASE WHEN r.external IS NULL THEN s.external ELSE (
        SELECT string_agg(u.name, E'\\n' ORDER BY u.first) FROM (
            SELECT m.name, min(m.n) AS first
            FROM unnest(string_to_array(concat_ws(E'\\n', s.external, r.external), E'\\n'))
                 WITH ORDINALITY AS m(name, n)
            GROUP BY m.name ORDER BY first LIMIT 20) u) END,
    log = CASE WHEN r.log IS NULL THEN s.log ELSE right(coalesce(s.log || E'\\n', '') || r.log, 20000) END
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(progress)s::float8[], %(notes)s::text[], %(externals)s::text[],
            %(logs)s::text[]) AS r(id, attempt, progress, note, external, log)
WHERE s.id = r.id AND s.attempt = r.attempt
"""


def write(conn: Connection, reports: dict[tuple[int, int, int], dict[str, Any]]) -> None:
    """Writes reports by (id, attempt, token) to the rows of those attempts; late ones of other attempts are dropped.

    Names of calls to the outside, one a line, are added to those of earlier attempts: whether those calls were made
    cannot be known, only that they may have been.
    """
    keys, values = list(reports), list(reports.values())
    params = {
        "ids": [key[0] for key in keys],
        "attempts": [key[1] for key in keys],
        "progress": [v.get("progress") for v in values],
        "notes": [v.get("note") or None for v in values],
        "externals": [v.get("external") for v in values],
        "logs": [v.get("log") for v in values],
    }
    put(conn, _WRITE, params)
