"""Open failures gathered into incidents: what fails at one step or shard, or began on one queue at the same time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.db.models import Count, Max, Q

from dashboard.nav import BOUND
from dashboard.queries.dead_letters import Group, groups
from orchestrator.core.mask import mask_text
from orchestrator.engine.explain_words import number
from orchestrator.engine.incidents import incidents_of
from orchestrator.models import DeadLetter, Incident

#: Failures no further apart than this may have one cause.
WINDOW = timedelta(minutes=30)


def many(count: int) -> str:
    """A bounded count."""
    return f"{BOUND:,}+" if count > BOUND else f"{count:,}"


@dataclass(frozen=True)
class Came:
    """What failed again after it was said to be fixed."""

    count: int
    last_at: datetime
    versions: list[int]


@dataclass(frozen=True)
class Gathered:
    """An incident: causes that belong together, most first, and what is noted of them."""

    groups: list[Group]
    row: Incident | None
    came: Came | None

    @property
    def count(self) -> int:
        """Open dead letters in all."""
        return sum(group.count for group in self.groups)

    @property
    def first_at(self) -> datetime:
        """When the first failed."""
        return min(group.first_at for group in self.groups)

    @property
    def last_at(self) -> datetime:
        """When the last failed."""
        return max(group.last_at for group in self.groups)

    @property
    def fingerprints(self) -> list[str]:
        """Of all its causes."""
        return [group.fingerprint for group in self.groups]

    @property
    def query(self) -> str:
        """The part of an address that asks for its dead letters."""
        return urlencode([("fingerprint", one) for one in self.fingerprints])

    @property
    def title(self) -> str:
        """``"OSError at 480p of transcode"``, or what its causes share: ``"2 causes at transcode"``."""
        if len(self.groups) == 1:
            return f"{self.groups[0].kind} at {self.groups[0].place}"
        return f"{number(len(self.groups), 'cause')} {self._shared()}"

    @property
    def heading(self) -> str:
        """With how many: ``"5 × OSError at 480p of transcode"``, ``"4 failures, 3 causes on queue media"``."""
        count = many(self.count)
        return f"{count} × {self.title}" if len(self.groups) == 1 else f"{count} failures, {self.title}"

    @property
    def workflows(self) -> list[str]:
        """Where it happens."""
        return sorted({group.workflow for group in self.groups})

    @property
    def versions(self) -> list[tuple[int, int]]:
        """(version, how many), the newest first; of one workflow only: numbers of several mean different things."""
        if len(self.workflows) > 1:
            return []
        counted: Counter[int] = Counter()
        for group in self.groups:
            counted.update(group.versions)
        return sorted(counted.items(), reverse=True)

    @property
    def note(self) -> str:
        """What is noted, masked."""
        return mask_text(self.row.note) if self.row else ""

    def _shared(self) -> str:
        shards = {group.shard if group.shards == 1 else "" for group in self.groups}
        if len(shards) == 1 and "" not in shards:
            return f"of shard {min(shards)}"
        steps = {group.step for group in self.groups}
        if len(steps) == 1:
            return f"at {min(steps)}"
        queues = {group.queue for group in self.groups}
        return f"on queue {min(queues)}" if len(queues) == 1 else f"around {self.groups[0].step}"


def incidents(limit: int = 100) -> tuple[list[Gathered], list[Group], int]:
    """Incidents of open dead letters, most first, their causes, and how many dead letters there are (bounded).

    Three queries.
    """
    found, total = groups(limit)
    rows = incidents_of(group.fingerprint for group in found)
    gathered = gather(found, rows)
    fixed = {row.pk: row for row in rows.values() if row.fixed_at}
    again = _came_back(list(fixed.values()))
    made = []
    for causes in gathered:
        row = next((rows[group.fingerprint] for group in causes if group.fingerprint in rows), None)
        made.append(Gathered(causes, row, again.get(row.pk) if row else None))
    return sorted(made, key=lambda one: (-one.count, -one.last_at.timestamp())), found, total


def gather(found: list[Group], noted: dict[str, Incident] | None = None) -> list[list[Group]]:
    """Causes that belong together. Those that people noted as one stay one."""
    noted, homes = noted or {}, list(range(len(found)))

    def home(index: int) -> int:
        while homes[index] != index:
            index = homes[index]
        return index

    for later, one in enumerate(found):
        for earlier in range(later):
            row, other = noted.get(one.fingerprint), noted.get(found[earlier].fingerprint)
            if (row and other and row.pk == other.pk) or alike(one, found[earlier]):
                homes[home(later)] = home(earlier)
    together: dict[int, list[Group]] = {}
    for index, one in enumerate(found):
        together.setdefault(home(index), []).append(one)
    return list(together.values())


def alike(one: Group, other: Group) -> bool:
    """Whether two causes seem to be one incident."""
    apart = max(one.first_at, other.first_at) - min(one.last_at, other.last_at)
    if apart > WINDOW:
        return False
    if (one.workflow, one.step) == (other.workflow, other.step):
        return True
    if one.shard and one.shard == other.shard and one.shards == other.shards == 1:
        return True
    began = abs(one.first_at - other.first_at) <= WINDOW
    return began and bool(one.queue) and one.queue == other.queue


def _came_back(rows: list[Incident]) -> dict[int, Came]:
    """What failed after the fix, by incident. One query when something is said to be fixed."""
    if not rows:
        return {}
    alike_to = {fingerprint: row for row in rows for fingerprint in row.fingerprints}
    later = Q()
    for row in rows:
        later |= Q(fingerprint__in=row.fingerprints, last_at__gt=row.fixed_at)
    letters = DeadLetter.objects.filter(later).order_by().values_list("fingerprint", "version")
    found: dict[int, Came] = {}
    for fingerprint, version, count, last in letters.annotate(n=Count("pk"), last=Max("last_at"))[:1000]:
        row = alike_to[fingerprint]
        so_far = found.get(row.pk, Came(0, last, []))
        versions = sorted({*so_far.versions, version}, reverse=True)
        found[row.pk] = Came(so_far.count + count, max(last, so_far.last_at), versions)
    return found
