"""A cheap sign that something changed: regions that poll are answered 304 while it stays the same."""

from __future__ import annotations

import time

from django.db import connection

from dashboard.render import make_tag

#: Seconds after which a region is drawn again though no row changed: lateness comes with time alone.
STALE = 10

# Each is the first entry of an index: no scan.
_SIGNS = """
SELECT
  (SELECT max(updated_at) FROM workflow_runs WHERE NOT (state IN ('cancelled', 'done', 'failed'))),
  (SELECT max(finished_at) FROM workflow_runs WHERE state IN ('cancelled', 'done', 'failed')),
  (SELECT id FROM workflow_runs ORDER BY id DESC LIMIT 1),
  (SELECT max(last_at) FROM workflow_dead_letters WHERE state = 'open'),
  (SELECT max(id) FROM workflow_audit)
"""


def version_tag(*scope: object) -> str:
    """A tag that changes when runs, dead letters or the audit trail do, and every :data:`STALE` seconds.

    ``scope`` is what else the answer depends on: the address, the role.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SIGNS)
        row = cursor.fetchone()
    return make_tag(row, int(time.time()) // STALE, *scope)
