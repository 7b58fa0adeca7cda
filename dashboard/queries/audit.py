"""The audit trail: keyset pages over changes of state and what people did."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from dashboard.queries.paging import Page, keyset, small_int
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask, mask_text
from orchestrator.models import AuditRecord

PAGE = 50


@dataclass(frozen=True)
class Entry:
    """A record with its change in words and its reason, masked."""

    record: AuditRecord
    change: str
    reason: str


@dataclass(frozen=True)
class Trail:
    """A page. ``people``: only what people did."""

    entries: list[Entry]
    page: Page[AuditRecord]
    people: bool
    problem: str = ""


def records(params: QueryDict) -> Trail:
    """The page that an address asks for: ``who=people`` leaves out what the engine noted."""
    people = params.get("who", "people") != "all"
    rows = AuditRecord.objects.select_related("run").defer("run__input", "run__output", "run__error")
    if people:
        rows = rows.exclude(actor="engine")
    try:
        page = keyset(rows, params.get("cursor", ""), PAGE, decode=small_int)
    except Invalid as error:
        return Trail([], Page([]), people, error.message)
    return Trail([Entry(row, _change(row), mask_text(row.reason)) for row in page.items], page, people)


def _change(row: AuditRecord) -> str:
    before, after = mask(row.before), mask(row.after)
    if isinstance(before, dict) and isinstance(after, dict) and "state" in before and "state" in after:
        cause = f", {str(after['cause']).replace('_', ' ')}" if after.get("cause") else ""
        return f"{before['state']} → {after['state']}{cause}"
    return " → ".join(_short(value) for value in (before, after) if value not in (None, {}))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else f"{text[:119]}…"
