"""The last hours for whoever takes over: what broke, who did what, what is paused or held."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Value

from dashboard.nav import BOUND, frame
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
from orchestrator.models import AuditRecord, BulkOperation, Run, Schedule, Topic

#: Hours to look back.
PERIODS = (4, 8, 12, 24)
#: Records of people that are read, rows of a list, and runs of one kind.
MOST, LIST, RUNS = 500, 20, 10

# Of whole hours: the one in which the time began counts. People's acts: from the end of a small index.
_SUMS = f"""
SELECT
  (SELECT json_agg(f ORDER BY f.n DESC, f.workflow) FROM (
     SELECT labels->>'workflow' AS workflow, sum(value)::int AS n FROM workflow_rollup_hours
     WHERE hour >= date_trunc('hour', %(since)s, 'UTC') AND metric = %(metric)s AND labels->>'state' = 'failed'
     GROUP BY 1) f),
  (SELECT count(*) FROM (
     SELECT 1 FROM workflow_runs WHERE {MISSED} AND finished_at > %(since)s LIMIT {BOUND + 1}) x),
  (SELECT json_agg(a ORDER BY a.last DESC) FROM (
     SELECT actor, (array_agg(role ORDER BY id DESC))[1] AS role, action, count(*) AS n, max(id) AS last FROM (
       SELECT id, actor, role, action, at FROM workflow_audit WHERE actor <> 'engine' AND action <> 'submit'
       ORDER BY id DESC LIMIT {MOST}) newest
     WHERE at > %(since)s GROUP BY actor, action) a)
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
    failed, missed, acts = _sums(since)
    gathered, _, _ = incidents()
    broke = [one for one in gathered if one.last_at > since]
    records = _records(since)
    return Handover(
        hours, since, failed, missed, frame().counts["overdue"], broke[:LIST], sum(one.count for one in broke),
        _people(acts), entries_of(records[:LIST]), len(records) > LIST, _held(), _runs(),
    )  # fmt: skip


def _sums(since: datetime) -> tuple[list[tuple[str, int]], int, list[dict[str, Any]]]:
    """Runs that failed by workflow, how many ended late, and what people did but submit, the newest act first."""
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, {"since": since, "metric": RUN_DURATION_BUCKET})
        row = cursor.fetchone()
    failed, acts = (json.loads(value) if isinstance(value, str) else value or [] for value in (row[0], row[2]))
    return [(one["workflow"], one["n"]) for one in failed], row[1], acts


def _records(since: datetime) -> list[AuditRecord]:
    """The newest of what people did but submit, one more than is shown."""
    rows = AuditRecord.objects.exclude(actor="engine").exclude(action="submit").select_related("run").order_by("-id")
    found = rows.defer("run__input", "run__output", "run__error")[: LIST + 1]
    return [row for row in found if row.at > since]


def _people(acts: list[dict[str, Any]]) -> list[Person]:
    did: dict[str, Counter[str]] = {}
    roles: dict[str, str] = {}
    for act in acts:
        did.setdefault(act["actor"], Counter())[act["action"].replace("_", " ")] += act["n"]
        roles.setdefault(act["actor"], act["role"])
    people = [
        Person(
            name, roles[name], counts.total(), listed([f"{count} × {word}" for word, count in counts.most_common()], 5)
        )
        for name, counts in did.items()
    ]
    return sorted(people, key=lambda person: (-person.count, person.name))


def _held() -> list[Held]:
    found = [
        Held(
            f"{pause.kind.capitalize()} {pause.name} is paused",
            "/queues/" if pause.kind == "queue" else f"/workflows/{pause.name}/",
            f"by {pause.actor}: {pause.reason}",
            pause.until,
        )
        for pause in frame().pauses[:LIST]
    ]
    schedules = Schedule.objects.filter(paused=True).annotate(what=Value("schedule"))
    topics = Topic.objects.filter(limit=0).annotate(what=Value("topic"), why=Value(""))
    shut = schedules.values_list("what", "workflow", "paused_by", "paused_reason")[:LIST].union(
        topics.values_list("what", "name", "set_by", "why")[:LIST], all=True
    )
    for what, name, actor, reason in shut:
        if what == "schedule":
            why = f"by {actor}: {mask_text(reason)}"
            found.append(Held(f"The schedule of {name} is paused", "/schedules/", why))
        else:
            who = f"set by {actor}" if actor else "as its definition has it"
            found.append(Held(f"Topic {name} is closed: its limit is 0", "/queues/", who))
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
    partial = light.filter(compensation=Undo.PARTIAL)
    found = held.order_by("hold_until")[:RUNS].union(partial.order_by("-id")[:RUNS], all=True)
    first = [run for run in found if run.compensation == Undo.PENDING]
    last = sorted((run for run in found if run.compensation == Undo.PARTIAL), key=lambda run: run.pk, reverse=True)
    return rows_of(sorted(first, key=lambda run: run.hold_until) + last)
