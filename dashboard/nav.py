"""The frame of every page: navigation with counts of what wants attention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from dashboard.access import role_of
from dashboard.keeping import KEPT, MANY, once
from orchestrator.engine.pauses import AS_JSON as PAUSES_AS_JSON
from orchestrator.engine.pauses import Paused, from_json

#: Counts stop here: more are shown as "10,000+", so that no page counts millions of rows.
BOUND = 10_000

_COUNTS = f"""
  (SELECT count(*) FROM (SELECT 1 FROM workflow_runs
    WHERE NOT (state IN ('cancelled', 'done', 'failed')) LIMIT {BOUND + 1}) live),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_runs
    WHERE state = 'running' AND deadline_at < now() LIMIT {BOUND + 1}) overdue),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_dead_letters WHERE state = 'open' LIMIT {BOUND + 1}) dead),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_steps
    WHERE state = 'waiting' AND waiting_for = 'approval' LIMIT {BOUND + 1}) asked),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_bulk_operations WHERE state = 'running' LIMIT {BOUND + 1}) bulk)
"""
_COUNTED = ("live", "overdue", "dead", "asked", "bulk")
# Never kept: a pause, a dispatcher that has gone and what somebody did are told at once.
_FRESH = f"""{PAUSES_AS_JSON}, (SELECT beat_at FROM workflow_beats WHERE name = 'dispatcher'),
  (SELECT max(id) FROM workflow_audit WHERE actor <> 'engine' AND action <> 'submit')"""


@dataclass(frozen=True)
class Frame:
    """What every page says: bounded counts by their names, the pauses in force, the dispatcher's last beat.

    ``last_act``: number of the last record of what a person did.
    """

    counts: dict[str, int]
    pauses: list[Paused]
    beat_at: datetime | None
    last_act: int | None


@dataclass(frozen=True)
class Item:
    """One entry. ``tone`` colours the count: hot, bad or nothing; ``key`` follows "g" on the keyboard.

    ``counted`` names what is counted, for the address of the count in the page; empty: nothing is.
    """

    title: str
    url: str
    icon: str
    key: str
    current: bool
    count: int | None
    tone: str
    counted: str = ""


@dataclass(frozen=True)
class Shell:
    """What base.html shows around a page."""

    groups: list[list[Item]]
    role: str
    environment: str
    theme: str

    @property
    def items(self) -> list[Item]:
        """All entries in one row, for the phone."""
        return [item for group in self.groups for item in group]


# (title, name of the URL, icon, key, what is counted, tone of the count). A page that is not built is not shown.
_ENTRIES = [
    [
        ("Overview", "overview", "layout-dashboard", "o", "", ""),
        ("Runs", "runs", "list", "r", "live", ""),
        ("Overdue", "overdue", "timer", "v", "overdue", "hot"),
        ("Dead letters", "dead-letters", "archive-x", "d", "dead", "bad"),
        ("Approvals", "approvals", "stamp", "p", "asked", ""),
        ("Bulk operations", "bulk-latest", "list-checks", "b", "bulk", ""),
        ("Where is it?", "where", "map-pin", "w", "", ""),
    ],
    [
        ("Workflows", "workflows", "workflow", "f", "", ""),
        ("Schedules", "schedules", "calendar-clock", "s", "", ""),
        ("Queues", "queues", "layers", "q", "", ""),
    ],
    [
        ("Health", "health", "heart-pulse", "h", "", ""),
        ("Audit", "audit", "history", "a", "", ""),
        ("Admin", "admin:index", "settings", "", "", ""),
    ],
]


def shell(request: HttpRequest) -> Shell:
    """Navigation, role and theme for this request. One query at most."""
    counts = frame().counts
    groups = []
    for entries in _ENTRIES:
        group = []
        for title, name, icon, key, counted, tone in entries:
            url = _url(name)
            if not url or (name == "admin:index" and not getattr(request.user, "is_staff", False)):
                continue
            count = counts.get(counted)
            current = request.path == url or (url != "/" and request.path.startswith(url))
            group.append(Item(title, url, icon, key, current, count, tone if count else "", counted))
        groups.append(group)
    return Shell(groups, role_of(request.user), environment(), theme(request))


def theme(request: HttpRequest) -> str:
    """The theme kept in the cookie: light, dark or nothing (then the system decides)."""
    wanted = request.COOKIES.get("theme", "")
    return wanted if wanted in ("light", "dark") else ""


def environment() -> str:
    """A short label of the deployment beside the name: DEV with DEBUG on, else ENVIRONMENT_LABEL of the settings."""
    return str(getattr(settings, "ENVIRONMENT_LABEL", "")) or ("DEV" if settings.DEBUG else "")


def _url(name: str) -> str:
    try:
        return reverse(name)
    except NoReverseMatch:
        return ""


def frame() -> Frame:
    """How things stand, for the frame and for pages that say the same. One query; large counts are kept."""
    return once("frame", _read)


def _read() -> Frame:
    counts: dict[str, int] | None = cache.get("dashboard:frame")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_FRESH}" if counts else f"SELECT {_FRESH}, {_COUNTS}")
        held, beat_at, last_act, *found = cursor.fetchone()
    if not counts:
        counts = dict(zip(_COUNTED, found, strict=True))
        if max(found) >= MANY:
            cache.set("dashboard:frame", counts, KEPT)
    return Frame(counts, from_json(held), beat_at, last_act)
