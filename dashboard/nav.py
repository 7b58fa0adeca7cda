"""The frame of every page: navigation with counts of what wants attention."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import connection
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from dashboard.access import role_of

#: Counts stop here: more are shown as "10,000+", so that no page counts millions of rows.
BOUND = 10_000

_COUNTS = f"""
SELECT
  (SELECT count(*) FROM (SELECT 1 FROM workflow_runs
    WHERE NOT (state IN ('cancelled', 'done', 'failed')) LIMIT {BOUND + 1}) live),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_runs
    WHERE state = 'running' AND deadline_at < now() LIMIT {BOUND + 1}) overdue),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_dead_letters WHERE state = 'open' LIMIT {BOUND + 1}) dead),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_steps
    WHERE state = 'waiting' AND waiting_for = 'approval' LIMIT {BOUND + 1}) asked),
  (SELECT count(*) FROM (SELECT 1 FROM workflow_bulk_operations WHERE state = 'running' LIMIT {BOUND + 1}) bulk)
"""


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
    """Navigation, role and theme for this request. One query."""
    counts = _counts()
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


def _counts() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS)
        live, overdue, dead, asked, bulk = cursor.fetchone()
    return {"live": live, "overdue": overdue, "dead": dead, "asked": asked, "bulk": bulk}
