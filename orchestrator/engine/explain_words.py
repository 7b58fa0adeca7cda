"""Phrases that every sentence about a run is made of. Pure: rows in, words out."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.utils import timezone

from orchestrator.core.durations import format_duration
from orchestrator.core.mask import mask_text
from orchestrator.core.states import Cause, Kind
from orchestrator.models import Step

ERROR_LENGTH = 160
#: What a step did when it ended with this cause: "480p of transcode timed out".
DID = {
    Cause.ERROR: "failed",
    Cause.TIMEOUT: "timed out",
    Cause.WORKER_LOST: "lost its worker",
    Cause.LOCK: "was refused its lock",
    Cause.INVALID_OUTPUT: "returned what is not JSON",
    Cause.INVALID_FAN_OUT: "got no list to fan out over",
    Cause.HANDLER_MISSING: "has no handler",
    Cause.ARTIFACT_MISSING: "missed an artifact",
    Cause.CHILD_FAILED: "had a child run that failed",
    Cause.CANCELLED: "was cancelled",
    Cause.DEADLINE: "ran into the deadline",
}


def did(cause: str | None) -> str:
    """What a step did that ended with this cause; without one it "failed"."""
    return DID.get(Cause(cause), "failed") if cause else "failed"


def label(step: str, shard: str | None) -> str:
    """``"480p of transcode"``, or the step alone."""
    return f"{_short(shard, 60)} of {step}" if shard else step


def label_of(row: Step) -> str:
    """The same of a row; of a compensation ``"delete_rendition of 480p"``."""
    if row.kind == Kind.COMPENSATION and row.shard:
        return f"{row.step} of {_short(row.shard, 60)}"
    return label(row.step, row.shard)


def error_text(error: Any, length: int = ERROR_LENGTH) -> str:
    """``"OSError: disk full"`` on one line, secrets masked, cut to ``length``; empty for none.

    ``Fail`` is no error of a program: of ``raise Fail("the amount must be positive")`` the reason says it all.
    """
    if not isinstance(error, dict):
        return ""
    kind, message = str(error.get("type") or ""), str(error.get("message") or "")
    text = f"{kind}: {message}" if kind and message and kind != "Fail" else message or kind
    return _short(mask_text(text[: 8 * length]), length).rstrip(".")


def _short(text: str, length: int) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def in_brackets(text: str) -> str:
    """``" (text)"``, secrets masked, or nothing for an empty text."""
    return f" ({mask_text(text)})" if text else ""


def times(count: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def number(count: int, one: str, more: str | None = None) -> str:
    """``"1 shard"``, ``"1,200 shards"``."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def span(seconds: float) -> str:
    """A length of time in whole seconds, never negative: ``"42 s"``, ``"under 1 s"``."""
    whole = round(seconds)
    return format_duration(whole) if whole > 0 else "under 1 s"


def clock(moment: datetime, now: datetime) -> str:
    """``"14:15:00"`` on the day of ``now``, else ``"1 Dec 14:15"``: UTC, or in the zone that the reader chose."""
    zone = timezone.get_current_timezone()
    moment, now = moment.astimezone(zone), now.astimezone(zone)
    if moment.date() == now.date():
        return moment.strftime("%H:%M:%S")
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year} {moment:%H:%M}"


def clock_zone(moment: datetime, now: datetime) -> str:
    """The same with the zone named: ``"14:15:00 UTC"``."""
    return f"{clock(moment, now)} {zone_name(moment)}"


def zone_name(moment: datetime) -> str:
    """What the reader's clocks are called at that moment: ``UTC``, ``CET``, ``+0545``."""
    return moment.astimezone(timezone.get_current_timezone()).strftime("%Z")


def at_in(moment: datetime, now: datetime) -> str:
    """``"at 14:15:00, in 42 s"``; ``"now"`` once it is due."""
    left = (moment - now).total_seconds()
    return f"at {clock(moment, now)}, in {span(left)}" if left >= 0.5 else "now"


def upper_first(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def sentences(*parts: str) -> str:
    """The parts that are not empty, each ending in a full stop, joined by spaces."""
    kept = [part.strip() for part in parts if part and part.strip()]
    return " ".join(part if part[-1] in ".?!" else f"{part}." for part in kept)


def listed(names: list[str], limit: int = 3) -> str:
    """``"a, b and c"``; past ``limit`` names ``"a, b, c and 4 more"``."""
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
