"""Cron expressions in a time zone: the ticks of a schedule as instants.

Summer time: where an expression names its hours (``30 2 * * *``), a local time that is missing comes once, right after
the gap, and one that is repeated comes once, the first time. Where it runs every hour (``*/15 * * * *``) real time
counts: nothing is left out and nothing comes twice. An expression of six fields has seconds first and knows real time
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

#: Missed ticks are counted up to here.
MOST = 10_000
_MICROSECOND = timedelta(microseconds=1)


class Due(NamedTuple):
    """What a schedule that is due comes to: the latest tick, how many have come with it, and the next (or none)."""

    tick: datetime
    come: int
    following: datetime | None


def cron_problem(cron: str) -> str | None:
    """What is wrong with an expression, for a sentence that begins with it; None for a good one."""
    try:
        if next(_simulate(cron, datetime(2024, 1, 1, tzinfo=UTC)), None) is None:
            return "is a cron expression that never comes"
    except CronSimError as error:
        return f"is not a cron expression ({error}); write five fields"
    return None


def zone_problem(timezone: str) -> str | None:
    """The same of a time zone's name."""
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        return "is no known time zone; write one such as Europe/Paris"
    return None


def ticks(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The ticks later than ``after``, in order, in UTC. Ends where no tick comes within fifty years."""
    last, local = after.astimezone(UTC), after.astimezone(ZoneInfo(timezone))
    simulated = _simulate(cron, local)
    if simulated.fixup_tz is not None:
        # Named hours are read as local time without an offset, which says too little where an hour is repeated: begin
        # before it, and leave out what is not later than the tick before.
        simulated = _simulate(cron, local - timedelta(hours=3))
    for tick in simulated:
        instant = tick.astimezone(UTC)
        if instant > last:
            last = instant
            yield instant


def next_tick(cron: str, timezone: str, after: datetime) -> datetime | None:
    """The first tick later than ``after``, in UTC."""
    return next(ticks(cron, timezone, after), None)


def due(cron: str, timezone: str, first: datetime, now: datetime) -> Due:
    """For a schedule whose tick ``first`` has come: the latest tick up to ``now``. ``come`` stops at MOST."""
    missed = islice(ticks(cron, timezone, first - _MICROSECOND), MOST)
    come = max(1, sum(1 for _ in _until(missed, now)))
    return Due(_latest(cron, timezone, first, now), come, next_tick(cron, timezone, now))


def fill_subject(subject: str, tick: datetime, timezone: str) -> str:
    """The subject of a tick's run: ``{date}``, ``{time}`` and ``{datetime}`` are local, as ISO 8601 writes them."""
    local = tick.astimezone(ZoneInfo(timezone)).replace(tzinfo=None)
    moment = local.isoformat(timespec="seconds" if local.second else "minutes")
    for name, text in (("date", moment[:10]), ("time", moment[11:]), ("datetime", moment)):
        subject = subject.replace(f"{{{name}}}", text)
    return subject


def _latest(cron: str, timezone: str, first: datetime, now: datetime) -> datetime:
    """Looks back further and further, so that a tick a second and one a decade take equally few steps."""
    for days in (1 / 24, 1, 32, 370, 3700):
        start = max(first - _MICROSECOND, now - timedelta(days=days))
        last = deque(_until(ticks(cron, timezone, start), now), maxlen=1)
        if last:
            return last[0]
    return first


def _until(instants: Iterator[datetime], end: datetime) -> Iterator[datetime]:
    for instant in instants:
        if instant > end:
            return
        yield instant


def _simulate(cron: str, start: datetime) -> CronSim:
    """cronsim follows Debian's cron, which takes a star in the minutes for "every hour"; here only the hours say so."""
    fields = cron.split()
    if len(fields) == 5:
        every_hour = set(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)).hours) == set(range(24))
        fields[1] = "*" if every_hour else fields[1].replace("*", "0-23")
        fields[0] = fields[0] if every_hour else fields[0].replace("*", "0-59")
    return CronSim(" ".join(fields), start)
