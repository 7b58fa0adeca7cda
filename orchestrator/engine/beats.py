"""Who leads as dispatcher: a row with a lease, so that it works behind a connection pooler too."""

from __future__ import annotations

from orchestrator.engine.db import Connection, put, rows

_LEAD = """
INSERT INTO workflow_beats (name, holder, beat_at, expires_at, detail)
VALUES ('dispatcher', %(holder)s, now(), now() + %(seconds)s * interval '1 second', '{}')
ON CONFLICT (name) DO UPDATE
SET holder = excluded.holder, beat_at = excluded.beat_at, expires_at = excluded.expires_at
WHERE workflow_beats.holder = excluded.holder OR workflow_beats.expires_at < now()
RETURNING holder
"""


def lead(conn: Connection, holder: str, seconds: float) -> bool:
    """Takes or keeps the lead for ``seconds``; False while somebody else has it."""
    return bool(rows(conn, _LEAD, {"holder": holder, "seconds": seconds}))


def resign(conn: Connection, holder: str) -> None:
    """Leaves the lead to whoever asks next."""
    put(conn, "UPDATE workflow_beats SET expires_at = now() WHERE name = 'dispatcher' AND holder = %s", [holder])
