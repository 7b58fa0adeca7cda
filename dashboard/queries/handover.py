"""The last hours for whoever takes over: what broke, who did what, what is paused or held."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from dashboard.nav import BOUND
from dashboard.queries.audit import Entry, entries_of
from dashboard.queries.incidents import Gathered, incidents
from dashboard.queries.overdue import MISSED
from dashboard.queries.runs import RunRow, rows_of
from orchestrator.core.bulk import BulkState
from orchestrator.core.mask import mask_text
from orchestrator.core.metric_names import RUN_DURATION_BUCKET
from orchestrator.core.states import RunState, Undo
from orchestrator.engine.clock import record_now
from orchestrator.engine.explain_words import listed, number
from orchestrator.models import AuditRecord, BulkOperation, Pause, Run, Schedule, Topic

#: Hours to look back.
PERIODS = (4, 8, 12, 24)
#: Records of people that are read, and rows of a list.
MOST, LIST = 500, 20

_FAILED = """
SELECT labels->>'workflow', sum(value)::int FROM workflow_rollup_hours
WHERE hour >= %s AND metric = %s AND labels->>'state' = 'failed' GROUP BY 1 ORDER BY 2 DESC, 1
"""
_COUNTS = f"""
SELECT (SELECT count(*) FROM (SELECT 1 FROM workflow_runs WHERE {MISSED} AND finished_at > %s LIMIT {BOUND + 1}) x),
       (SELECT count(*) FROM (SELECT 1 FROM workflow_runs
         WHERE state = 'running' AND deadline_at < now() LIMIT {BOUND + 1}) y)
"""


@dataclass(frozen=True)
class Person:
    """Somebody who acted, and how often they did what, most first."""

    name: str
    role: str
    count: int
    did: str


@dataclass(frozen=True)
class Held:
    """Something that stands still until somebody or a time lets it go."""

    what: str
    url: str
    detail: str
    until: datetime | None = None


@dataclass(frozen=True)
class Handover:
    """The page. ``failed``: (workflow, runs that ended failed); counts are bounded."""

    hours: int
    since: datetime
    failed: list[tuple[str, int]]
    missed: int
    overdue: int
    broke: list[Gathered]
    waiting: int
    people: list[Person]
    entries: list[Entry]
    more: bool
    held: list[Held]
    runs: list[RunRow]

    @property
    def sentence(self) -> str:
        """All of it in one breath."""
        failed = sum(count for _, count in self.failed)
        first = f"{number(failed, 'run')} failed" if failed else "no run failed"
        late = f", {number(self.missed, 'run')} ended late" if self.missed else ""
        now = f", {number(self.overdue, 'is overdue', 'are overdue')} now" if self.overdue else ""
        wait = number(self.waiting, "failure waits", "failures wait") if self.waiting else "no failure waits"
        acts = sum(person.count for person in self.people)
        done = (
            f"{number(len(self.people), 'person', 'people')} acted {number(acts, 'time')}" if acts else "Nobody acted"
        )
        still = len(self.held) + len(self.runs)
        stands = f"{number(still, 'thing stands', 'things stand')} still" if still else "nothing is paused or held"
        return f"In the last {self.hours} hours {first}{late}{now}; {wait} in the dead letters. {done}; {stands}."


def handover(given: str = "") -> Handover:
    """The last ``given`` hours (8 unless it is one of :data:`PERIODS`). A fixed number of queries."""
    hours = int(given) if given in {str(one) for one in PERIODS} else 8
    now = record_now()
    since = now - timedelta(hours=hours)
    with connection.cursor() as cursor:
        # Whole hours: the one in which the time began counts.
        cursor.execute(_FAILED, [since.replace(minute=0, second=0, microsecond=0), RUN_DURATION_BUCKET])
        failed = cursor.fetchall()
        cursor.execute(_COUNTS, [since])
        missed, overdue = cursor.fetchone()
    gathered, _, _ = incidents()
    broke = [one for one in gathered if one.last_at > since]
    records = _people(since)
    return Handover(
        hours, since, failed, missed, overdue, broke[:LIST], sum(one.count for one in broke), _acts(records),
        entries_of(records[:LIST]), len(records) > LIST, _held(now), _runs(),
    )  # fmt: skip


def _people(since: datetime) -> list[AuditRecord]:
    """What people did but submit, the newest first: from the end of a small index."""
    rows = AuditRecord.objects.exclude(actor="engine").exclude(action="submit").select_related("run").order_by("-id")
    found = rows.defer("run__input", "run__output", "run__error")[:MOST]
    return [row for row in found if row.at > since]


def _acts(records: list[AuditRecord]) -> list[Person]:
    did: dict[str, Counter[str]] = {}
    roles: dict[str, str] = {}
    for row in records:
        did.setdefault(row.actor, Counter())[row.action.replace("_", " ")] += 1
        roles.setdefault(row.actor, row.role)
    people = [
        Person(
            name, roles[name], counts.total(), listed([f"{count} × {word}" for word, count in counts.most_common()], 5)
        )
        for name, counts in did.items()
    ]
    return sorted(people, key=lambda person: (-person.count, person.name))


def _held(now: datetime) -> list[Held]:
    found = [
        Held(
            f"{pause.kind.capitalize()} {pause.name} is paused",
            "/queues/" if pause.kind == "queue" else f"/workflows/{pause.name}/",
            f"by {pause.actor}: {mask_text(pause.reason)}",
            pause.until,
        )
        for pause in Pause.objects.filter(until__gt=now).order_by("until")[:LIST]
    ]
    for schedule in Schedule.objects.filter(paused=True)[:LIST]:
        why = f"by {schedule.paused_by}: {mask_text(schedule.paused_reason)}"
        found.append(Held(f"The schedule of {schedule.workflow} is paused", "/schedules/", why))
    for topic in Topic.objects.filter(limit=0)[:LIST]:
        who = f"set by {topic.set_by}" if topic.set_by else "as its definition has it"
        found.append(Held(f"Topic {topic.name} is closed: its limit is 0", "/queues/", who))
    for bulk in BulkOperation.objects.filter(state__in=(BulkState.PAUSED, BulkState.RUNNING))[:LIST]:
        state = "paused" if bulk.state == BulkState.PAUSED else "under way"
        left = bulk.total - bulk.done - bulk.skipped - bulk.failed
        detail = f"{left:,} of {bulk.total:,} to go, begun by {bulk.actor}: {mask_text(bulk.note or bulk.reason)}"
        found.append(Held(f"Bulk {bulk.verb} is {state}", f"/bulk/{bulk.pk}/", detail))
    return found


def _runs() -> list[RunRow]:
    """Runs that are held before their undo, then those whose undo is incomplete."""
    light: Any = Run.objects.defer("input", "output")
    held = light.filter(
        state=RunState.COMPENSATING, stop__isnull=False, compensation=Undo.PENDING, hold_until__isnull=False
    )
    found = list(held.order_by("hold_until")[:LIST])
    return rows_of(found + list(light.filter(compensation=Undo.PARTIAL).order_by("-id")[:LIST]))
