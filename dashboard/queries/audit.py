"""The audit trail: keyset pages over changes of state and what people did, by who, what, on which run and when."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict

from dashboard.queries import run_filters
from dashboard.queries.paging import Page, keyset, small_int
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask, mask_text
from orchestrator.models import AuditRecord, Run

PAGE = 50
#: Runs of one subject that are looked at, the newest.
MOST_RUNS = 200
#: What is recorded, for the filter: those of the code, so that no query looks for them.
ACTIONS = (
    "approve", "bulk_cancel", "bulk_discard", "bulk_replay", "bulk_retry", "cancel", "create_token", "deadline",
    "delete_view", "discard", "extend", "hold", "note", "note_incident", "pause", "publish", "reject", "rejected",
    "repair", "replay", "restore", "resume", "retire", "retry", "revoke_token", "save_view", "settle", "share", "skip",
    "state", "submit", "topic",
)  # fmt: skip
#: Parameters of an address that narrow the trail.
NAMES = ("actor", "action", "subject", "since", "until")


@dataclass(frozen=True)
class Entry:
    """A record with its change in words and its reason, masked."""

    record: AuditRecord
    change: str
    reason: str


@dataclass(frozen=True)
class Trail:
    """A page. ``people``: only what people did; ``given``: the filters in force."""

    entries: list[Entry]
    page: Page[AuditRecord]
    people: bool
    problem: str = ""
    given: dict[str, str] = field(default_factory=dict)


def matching(params: QueryDict) -> QuerySet[AuditRecord]:
    """The records that an address asks for: what people did but submit; ``who=all`` adds what the engine noted too.

    ``subject`` is the subject or id of a run, or what else a record concerns (``queue media``), written in full.

    Raises:
        Invalid: for a value that cannot be read.
    """
    rows = AuditRecord.objects.select_related("run").defer("run__input", "run__output", "run__error")
    if params.get("who", "people") != "all":
        rows = rows.exclude(actor="engine")
        rows = rows if params.get("action") else rows.exclude(action="submit")
    when = run_filters.parse({name: params.getlist(name) for name in ("since", "until")})
    for name in ("actor", "action"):
        if text := params.get(name, "").strip():
            rows = rows.filter(**{name: _text(name, text)})
    if text := params.get("subject", "").strip():
        rows = _about(rows, _text("subject", text))
    if when.since:
        rows = rows.filter(at__gte=when.since)
    if when.until:
        rows = rows.filter(at__lte=when.until)
    return rows


def records(params: QueryDict) -> Trail:
    """The page that an address asks for; a value that cannot be read gives no rows but says what to fix."""
    people = params.get("who", "people") != "all"
    given = {name: params.get(name, "") for name in NAMES}
    try:
        page = keyset(matching(params), params.get("cursor", ""), PAGE, decode=small_int)
    except Invalid as error:
        return Trail([], Page([]), people, error.message, given)
    return Trail(entries_of(page.items), page, people, "", given)


def entries_of(rows: list[AuditRecord]) -> list[Entry]:
    """Records in words."""
    return [Entry(row, _change(row), mask_text(row.reason)) for row in rows]


def _about(rows: QuerySet[AuditRecord], text: str) -> QuerySet[AuditRecord]:
    """Those of the runs with this subject or id; where there is no such run, those that concern something so called."""
    runs = Run.objects.order_by("-id").values_list("pk", flat=True)
    try:
        found = list(runs.filter(pk=uuid.UUID(text)))
    except ValueError:
        found = list(runs.filter(subject_id=text)[:MOST_RUNS])
    return rows.filter(run_id__in=found) if found else rows.filter(subject=text)


def _text(name: str, text: str) -> str:
    if "\x00" in text:
        raise Invalid(f"{name} holds a NUL character", field=name)
    return text[:500]


def _change(row: AuditRecord) -> str:
    before, after = mask(row.before), mask(row.after)
    if isinstance(before, dict) and isinstance(after, dict) and "state" in before and "state" in after:
        cause = f", {str(after['cause']).replace('_', ' ')}" if after.get("cause") else ""
        return f"{before['state']} → {after['state']}{cause}"
    return " → ".join(_short(value) for value in (before, after) if value not in (None, {}))


def _plain(value: Any) -> str:
    """``step pick, state running`` for what is flat; JSON for what holds lists or objects."""
    if isinstance(value, dict) and not any(isinstance(one, dict | list) for one in value.values()):
        return ", ".join(f"{str(name).replace('_', ' ')} {_word(one)}" for name, one in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _word(value: Any) -> str:
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _short(value: Any) -> str:
    text = _plain(value)
    return text if len(text) <= 120 else f"{text[:119]}…"
