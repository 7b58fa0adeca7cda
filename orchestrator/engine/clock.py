"""The record's time in the processes that show it.

Every due time, lease and deadline is the database's; a process whose own clock is wrong, or is set while it runs, must
not show an attempt that began in the future or a deadline an hour off.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import psycopg
from django.db import connection
from django.utils import timezone

#: Seconds after which the database is asked again; in between the time goes on with the monotonic clock.
_AGAIN = 30.0
#: What the database said last, and the monotonic time then; one entry at most.
_known: list[tuple[float, datetime]] = []


def record_now() -> datetime:
    """The database's time, UTC; of this process while the database has never answered. Opens no connection."""
    if not _known or time.monotonic() - _known[0][0] > _AGAIN:
        _known[:] = _ask() or _known
    if not _known:
        return timezone.now()
    at, said = _known[0]
    return said + timedelta(seconds=time.monotonic() - at)


def _ask() -> list[tuple[float, datetime]]:
    raw, at = connection.connection, time.monotonic()  # before the question: what is shown is never behind the record
    if raw is None or raw.closed:
        return []
    try:
        row = raw.cursor().execute("SELECT clock_timestamp()").fetchone()
    except psycopg.Error:  # a transaction that has failed, a connection that is gone: others say so
        return []
    return [(at, row[0].astimezone(UTC))]
