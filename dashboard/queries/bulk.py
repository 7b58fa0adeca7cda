"""What the pages of bulk operations show: what would be done, how far one has come, what became of each."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import QueryDict

from dashboard.queries import bulk_filters, run_filters
from orchestrator.core.bulk import BulkState, BulkVerb, ItemState, Outcome
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask_text
from orchestrator.engine import bulk_report
from orchestrator.engine.bulk import BulkPreview, Filters
from orchestrator.engine.explain_words import number, sentences
from orchestrator.models import BulkItem, BulkOperation, DeadLetter, Run

PAGE = 50
LATEST = 30


@dataclass(frozen=True)
class Asked:
    """What a form or link asks to be done to many: ticked ids, or criteria by name as an address holds them."""

    verb: BulkVerb
    ids: list[str] | None
    given: dict[str, list[str]]

    @property
    def filters(self) -> Filters | None:
        """The filter. Raises Invalid for none or one that cannot be read."""
        return None if self.ids is not None else bulk_filters.parse(self.verb, self.given)

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """The same as fields of a form."""
        named = [("id", one) for one in self.ids or ()]
        return [("verb", str(self.verb)), *named, *((name, v) for name, values in self.given.items() for v in values)]

    @property
    def chips(self) -> list[tuple[str, str]]:
        """The criteria to be shown."""
        return [(name, value) for name, values in self.given.items() for value in values]


def asked(params: QueryDict) -> Asked:
    """Reads ``verb``, and ``id`` (repeated) or the criteria of the list.

    Raises:
        Invalid: there is no such verb.
    """
    word = params.get("verb", "")
    if word not in list(BulkVerb):
        raise Invalid(f"{word[:40]!r} cannot be done to many at once", field="verb")
    verb = BulkVerb(word)
    ids = [one.replace("\x00", "\ufffd") for one in params.getlist("id") if one]
    given = {name: [v for v in params.getlist(name) if v] for name in bulk_filters.names(verb) if params.get(name)}
    return Asked(verb, ids if ids or not given else None, {} if ids else given)


def link_to_all(filters: run_filters.RunFilters) -> str:
    """The part of an address that asks for all runs that match; empty where that would be every run."""
    return "" if filters.is_empty() else urlencode(run_filters.as_query(filters))


@dataclass(frozen=True)
class Shown:
    """What would be done, in words. ``verb`` is on the button."""

    title: str
    text: str
    button: str
    lists: list[tuple[str, list[tuple[str, str]], int]]


_WHAT = {
    BulkVerb.REPLAY: "Each is executed again with a fresh budget of attempts, and its run goes on from there.",
    BulkVerb.DISCARD: "Nothing is executed and the runs stay as they are; each failure is closed with your reason.",
    BulkVerb.RETRY: "Each run goes on with fresh attempts and a new deadline.",
    BulkVerb.CANCEL: "In each run nothing new starts, what runs is told to stop, and what was done is undone.",
}
#: Rows of one list.
_LISTED = 12


def shown(preview: BulkPreview) -> Shown:
    """A preview for the page that asks."""
    verb = preview.verb
    count = number(preview.eligible, verb.objects(1))
    others = preview.total - preview.eligible
    skipped = f"{number(others, 'other is', 'others are')} in the set but cannot be {verb.past} now; they are skipped"
    pace = "The first is done alone; the others follow when its run has ended, or after 10 s, at a steady pace"
    text = sentences(_WHAT[verb], pace if verb is not BulkVerb.DISCARD else "", skipped if others else "")
    lists = [
        ("State", _rows(preview.states)),
        ("Workflow", _rows(preview.versions)),
        ("Step", _rows(preview.steps)),
    ]
    missing = [("not there any more", f"{preview.missing:,}")] if preview.missing else []
    lists[0] = ("State", lists[0][1] + missing)
    if preview.side_effects:
        lists.append(("Calls to the outside that would be made again", _rows(preview.side_effects)))
    return Shown(
        f"{verb.capitalize()} {count}?",
        text,
        f"{verb.capitalize()} {count}",
        [(heading, rows[:_LISTED], max(0, len(rows) - _LISTED)) for heading, rows in lists],
    )


def _rows(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in counts.items()]


@dataclass(frozen=True)
class ItemRow:
    """One of the set: what it is called, what became of it and of its run."""

    item: BulkItem
    name: str
    about: str
    state: str
    detail: str
    run: Run | None


@dataclass(frozen=True)
class Progress:
    """How far an operation has come. ``bars``: (colour class, x, width) in percent of the set."""

    operation: BulkOperation
    verb: BulkVerb
    sentence: str
    note: str
    bars: list[tuple[str, float, float]]
    remaining: int
    rows: list[ItemRow]
    next: str
    problem: str

    @property
    def which(self) -> list[tuple[str, str]]:
        """The criteria of the set; none where its ids were named."""
        given = self.operation.filter or {}
        return [(name, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in given.items()]

    @property
    def reason(self) -> str:
        """Why it was begun, masked."""
        return mask_text(self.operation.reason)

    @property
    def can_stop(self) -> bool:
        """Whether it is under way or paused."""
        return self.operation.state in (BulkState.RUNNING, BulkState.PAUSED)

    @property
    def can_resume(self) -> bool:
        """Whether it waits to be told to go on."""
        return self.operation.state in (BulkState.PAUSED, BulkState.STOPPED)


def progress(operation: BulkOperation, cursor: str, state: str) -> Progress:
    """An operation with a page of its set; a cursor or state that is none gives no rows but says so."""
    problem, page = "", bulk_report.ItemPage([], "")
    try:
        page = bulk_report.items(operation.pk, cursor, PAGE, state)
    except Invalid as error:
        problem = error.message
    verb = BulkVerb(operation.verb)
    return Progress(
        operation,
        verb,
        _sentence(operation, verb),
        mask_text(operation.note),
        _bars(operation),
        bulk_report.remaining(operation),
        _item_rows(verb, page.items),
        page.next_cursor,
        problem,
    )


def _sentence(op: BulkOperation, verb: BulkVerb) -> str:
    if not op.total:
        return f"Nothing matched, so nothing was {verb.past}."
    done = f"{op.done:,} of {number(op.total, verb.objects(1))} {verb.past}"
    rest = [f"{count:,} {word}" for count, word in ((op.skipped, "skipped"), (op.failed, "failed")) if count]
    left = bulk_report.remaining(op)
    going = {
        BulkState.RUNNING: f"{left:,} to go" if left else "",
        BulkState.PAUSED: f"it paused by itself with {left:,} to go",
        BulkState.STOPPED: f"it was stopped with {left:,} to go",
        BulkState.DONE: "",
    }[BulkState(op.state)]
    if op.state == BulkState.RUNNING and op.first_until is not None:
        going = f"the other {left:,} wait for the first one's run"
    return sentences(", ".join([done, *rest]) + (f"; {going}" if going else ""))


def _bars(op: BulkOperation) -> list[tuple[str, float, float]]:
    bars, at = [], 0.0
    parts = ((op.done, "f-ok"), (op.skipped, "f-idle"), (op.failed, "f-fail"), (bulk_report.remaining(op), "f-track"))
    for count, css in parts:
        width = 100 * count / op.total if op.total else 0.0
        if count:
            bars.append((css, round(at, 3), round(width, 3)))
        at += width
    return bars


def _item_rows(verb: BulkVerb, items: Sequence[BulkItem]) -> list[ItemRow]:
    ids = [item.run_id for item in items if item.run_id]
    runs: dict[uuid.UUID, Run] = {
        run.pk: run for run in Run.objects.filter(pk__in=ids).only("subject_id", "workflow", "version", "state")
    }
    steps: dict[str, str] = {}
    if not verb.of_runs:
        numbers = [int(item.target) for item in items if item.run_id]
        letters = DeadLetter.objects.filter(pk__in=numbers).values_list("pk", "step", "shard")
        steps = {str(pk): f"{shard} of {step}" if shard else step for pk, step, shard in letters}
    return [_item_row(item, runs.get(item.run_id) if item.run_id else None, steps) for item in items]


def _item_row(item: BulkItem, run: Run | None, steps: dict[str, str]) -> ItemRow:
    name = run.subject_id if run else item.target
    about = f"{run.workflow} v{run.version}" if run else "not there any more" if item.run_id else ""
    step = steps.get(item.target)
    state = "failed_again" if item.outcome == Outcome.FAILED_AGAIN else item.state
    return ItemRow(item, name, f"{step}, {about}" if step else about, state, mask_text(item.detail), run)


def latest() -> list[Progress]:
    """The newest operations, without their items."""
    found = BulkOperation.objects.order_by("-created_at")[:LATEST]
    return [
        Progress(op, BulkVerb(op.verb), _sentence(op, BulkVerb(op.verb)), mask_text(op.note), _bars(op),
                 bulk_report.remaining(op), [], "", "")
        for op in found
    ]  # fmt: skip


STATES = tuple(str(state) for state in ItemState)
