"""Whether the machinery is well: what it stands on, and what it is behind with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from dashboard.nav import BOUND
from dashboard.queries.overview import beat_patience
from orchestrator import readiness
from orchestrator.models import Beat, Pause
from orchestrator.transport.health import eviction_warning

_LAG = f"""
SELECT
  (SELECT count(*) FROM (SELECT 1 FROM workflow_outbox LIMIT {BOUND + 1}) x),
  (SELECT created_at FROM workflow_outbox ORDER BY id LIMIT 1),
  (SELECT ready_at FROM workflow_steps WHERE state = 'waiting' AND ready_at IS NOT NULL ORDER BY ready_at LIMIT 1),
  current_setting('server_version'),
  pg_database_size(current_database())
"""


@dataclass(frozen=True)
class Check:
    """One line. ``mark`` is a word of ``words.MARK``: ok, late, down or unknown. ``ago``: ``since`` is a last time."""

    name: str
    mark: str
    word: str
    detail: str
    since: datetime | None = None
    ago: bool = False


@dataclass(frozen=True)
class Health:
    """The page."""

    checks: list[Check]
    pauses: list[Pause]
    broken: list[dict[str, str]]

    @property
    def worst(self) -> str:
        """The worst mark of all."""
        marks = [check.mark for check in self.checks]
        return next((mark for mark in ("down", "late", "unknown") if mark in marks), "ok")

    @property
    def sentence(self) -> str:
        """The answer on top of the page."""
        bad = [check for check in self.checks if check.mark != "ok"]
        if not bad:
            return "Everything is up: database, Redis and dispatcher answer, and the outbox is empty or nearly so."
        return " ".join(f"{check.name}: {check.detail}." for check in bad)


def health() -> Health:
    """All checks; Redis and database are asked with a limit of time."""
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(_LAG)
        row: tuple[Any, ...] = cursor.fetchone()
    beats = list(Beat.objects.order_by("name"))
    doctor = next((beat for beat in beats if beat.name == "doctor"), None)
    checks = [_database(row), _redis(), _dispatcher(beats, now), _outbox(row, now), _due(row, now), _doctor(doctor)]
    broken = doctor.detail.get("items", []) if doctor else []
    return Health(checks, list(Pause.objects.filter(until__gt=now).order_by("until")[:100]), broken)


def _database(row: tuple[Any, ...]) -> Check:
    return Check("Database", "ok", "Up", f"PostgreSQL {row[3].split(' ')[0]}, {_size(row[4])}")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _redis() -> Check:
    problem = next(part for part in readiness.check() if part.name == "redis")
    if problem.ok:
        if warning := eviction_warning(0.5):
            return Check("Redis", "late", "May evict", warning)
        return Check("Redis", "ok", "Up", "answers; it may be flushed at any time, tickets are issued again")
    detail = f"{problem.detail}; no new work is handed out until it is back, nothing is lost"
    return Check("Redis", "down", "Down", detail)


def _dispatcher(beats: list[Beat], now: datetime) -> Check:
    beat = next((beat for beat in beats if beat.name == "dispatcher"), None)
    if beat is None:
        return Check("Dispatcher", "down", "Never seen", "start one: manage.py dispatcher")
    silent = (now - beat.beat_at).total_seconds()
    if silent > beat_patience():
        who = f" ({beat.holder})" if beat.holder else ""
        detail = f"no sign of life{who}; timers, retries and lost workers wait for it"
        return Check("Dispatcher", "down", "Not seen", detail, beat.beat_at)
    return Check("Dispatcher", "ok", "Up", f"led by {beat.holder}" if beat.holder else "beats", beat.beat_at, True)


def _outbox(row: tuple[Any, ...], now: datetime) -> Check:
    count, oldest = row[0], row[1]
    if not count:
        return Check("Outbox", "ok", "Empty", "every ticket has been handed to RQ")
    many = f"over {BOUND:,}" if count > BOUND else f"{count:,}"
    late = (now - oldest).total_seconds() > beat_patience()
    detail = f"{many} tickets wait to be handed to RQ"
    return Check("Outbox", "late" if late else "ok", "Behind" if late else "Moving", detail, oldest)


def _due(row: tuple[Any, ...], now: datetime) -> Check:
    oldest = row[2]
    if oldest is None or (now - oldest).total_seconds() <= beat_patience():
        return Check("Timers and retries", "ok", "On time", "nothing that is due waits")
    return Check("Timers and retries", "late", "Behind", "steps are due that the dispatcher has not fired", oldest)


def _doctor(beat: Beat | None) -> Check:
    """The last look at the invariants of the record: the dispatcher's own, or somebody's on the command line."""
    if beat is None:
        return Check("Doctor", "ok", "Not yet", "looks when the dispatcher has run for a while; now: manage.py doctor")
    count = int(beat.detail.get("broken", 0))
    if not count:
        checked = len(beat.detail.get("checked", []))
        said = f"{checked} invariants held when they were last looked at"
        return Check("Doctor", "ok", "Well", said, beat.beat_at, True)
    what = "1 thing is broken" if count == 1 else f"{count:,} things are broken"
    return Check("Doctor", "down", "Broken", f"{what}; mend it with manage.py doctor --repair", beat.beat_at)
