"""Schedules for their page, with what holds them back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone

from orchestrator.core.mask import mask_text
from orchestrator.engine import pauses
from orchestrator.models import Schedule

#: Schedules on the page at most.
MOST = 500
#: A tick this far behind has nobody to fire it.
LATE = timedelta(seconds=10)
_ORDER = {"late": 0, "paused": 1, "ok": 2}


@dataclass(frozen=True)
class Line:
    """A schedule. ``held``: the pause of its workflow, if there is one."""

    row: Schedule
    held: pauses.Paused | None
    now: datetime

    @property
    def mark(self) -> str:
        """paused; late: its tick has come and nobody fires it; ok."""
        if self.row.paused or self.held:
            return "paused"
        return "late" if self.row.next_at and self.now - self.row.next_at > LATE else "ok"

    @property
    def local(self) -> str:
        """The next tick as its zone's clocks show it, where that is not UTC."""
        if self.row.next_at is None or self.row.timezone == "UTC":
            return ""
        return f"{self.row.next_at.astimezone(ZoneInfo(self.row.timezone)):%d %b %H:%M} there"

    @property
    def reason(self) -> str:
        """Why it is paused."""
        return mask_text(self.row.paused_reason)


def schedules() -> list[Line]:
    """Late ones first, then paused ones, then by their next tick. Two queries."""
    held = {pause.name: pause for pause in pauses.live() if pause.kind == "workflow"}
    now = timezone.now()
    rows = Schedule.objects.select_related("last_run").defer("last_run__input", "last_run__output", "last_run__error")
    found = [Line(row, held.get(row.workflow), now) for row in rows[:MOST]]
    return sorted(found, key=lambda line: (_ORDER[line.mark], line.row.next_at or now + timedelta(36500), line.row.pk))
