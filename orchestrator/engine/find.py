"""Finding runs: one meaning of each filter, for the runs page, the API, bulk actions and the command line.

Lists page by the run's id, newest first: ids are UUIDv7, so a page costs the same wherever it lies. A query that
would read too much is stopped after :data:`PATIENCE` seconds instead of holding up the database.
"""

from __future__ import annotations

import json
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import OperationalError, connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from orchestrator.core.errors import Invalid
from orchestrator.core.ids import first_id
from orchestrator.core.states import RUN_LIVE, STEP_LIVE, RunState
from orchestrator.engine.describe import for_items
from orchestrator.models import Run, Step

MAX_PAGE = 200
#: Seconds that one list query may take.
PATIENCE = 5.0
#: Between the making of a run's id and its submission on the database's clock lie fewer seconds than this.
ID_SLACK = 3600.0
LIVE = sorted(RUN_LIVE)
STEP_OPEN = sorted(STEP_LIVE)
T = TypeVar("T")


class TooBroad(Invalid):
    """The filters match so much, or so little by so slow a way, that the answer was given up."""

    code = "too_broad"


@dataclass(frozen=True)
class RunFilters:
    """What to look for. Everything given must hold; of a tuple, any of its values.

    ``step`` alone: runs that stand at the step, or stood there when they ended. With ``step_state``: runs that have
    that step, or one of its shards, in that state. ``waiting_longer_than`` (seconds): live runs whose step (any, or
    ``step``) was reached that long ago and is not finished. ``label`` holds (key, value) pairs. ``overdue``: running
    past the deadline. ``since`` and ``until`` bound the time of submission. ``q`` is looked for in subjects,
    workflows, idempotency keys and the beginning of ids.
    """

    workflow: str | None = None
    version: int | None = None
    state: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    compensation: tuple[str, ...] = ()
    subject_id: str | None = None
    label: tuple[tuple[str, str], ...] = ()
    step: str | None = None
    step_state: tuple[str, ...] = ()
    waiting_longer_than: float | None = None
    parent: uuid.UUID | None = None
    overdue: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    q: str | None = None

    def is_empty(self) -> bool:
        """Whether nothing at all is asked for, so that every run matches."""
        return all(getattr(self, f.name) in (None, ()) for f in fields(self))


@dataclass(frozen=True)
class RunPage:
    """Some runs, newest first, and the cursor of the next page; ``None`` when there is none."""

    items: list[Run]
    next_cursor: str | None = None


def matching(filters: RunFilters) -> QuerySet[Run]:
    """The runs that match, newest first."""
    runs = Run.objects.filter(_plain(filters)).order_by("-id")
    for key, value in filters.label:
        runs = runs.filter(_label(key, value))
    if filters.overdue is not None:
        late = Q(state=RunState.RUNNING, deadline_at__lt=Now())
        runs = runs.filter(late) if filters.overdue else runs.exclude(Q(deadline_at__isnull=False) & late)
    if filters.step or filters.step_state or filters.waiting_longer_than is not None:
        runs = runs.filter(_at_step(filters))
    if filters.q:
        runs = runs.filter(text_condition(filters.q))
    return runs


def page(filters: RunFilters, cursor: str | None = None, limit: int = 50) -> RunPage:
    """One page of the runs that match, read for ``describe.run_items``: without input and output.

    Raises:
        Invalid: for a cursor that is none of ours or a limit outside 1 to 200.
        TooBroad: when it takes longer than :data:`PATIENCE`.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"limit is a whole number from 1 to {MAX_PAGE}", field="limit")
    runs = for_items(matching(filters))
    if cursor:
        runs = runs.filter(id__lt=decode_cursor(cursor))
    found = patiently(lambda: list(runs[: limit + 1]))
    more = len(found) > limit
    return RunPage(found[:limit], encode_cursor(found[limit - 1].id) if more else None)


def patiently(read: Callable[[], T], seconds: float = PATIENCE) -> T:
    """The answer of ``read()``, whose statements may take ``seconds`` each.

    Raises:
        TooBroad: when one takes longer.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(int(seconds * 1000))])
            answer = read()
            # In a transaction of the caller's the setting would outlive this block.
            cursor.execute("SELECT set_config('statement_timeout', '0', true)")
            return answer
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == "57014":
            raise TooBroad(
                f"looking took longer than {seconds:g} s; narrow it down by workflow, state, subject or time", field="q"
            ) from None
        raise


def encode_cursor(run_id: uuid.UUID) -> str:
    """The cursor of the page that follows this run."""
    return urlsafe_b64encode(run_id.bytes).decode().rstrip("=")


def decode_cursor(cursor: str) -> uuid.UUID:
    """The run that a page follows.

    Raises:
        Invalid: for text that :func:`encode_cursor` did not make.
    """
    try:
        run_id = uuid.UUID(bytes=urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if encode_cursor(run_id) == cursor:
            return run_id
    except (BadBase64, ValueError):
        pass
    raise Invalid("the cursor is not one that a list answered as next_cursor", field="cursor")


def _plain(filters: RunFilters) -> Q:
    """Conditions on the run's own columns."""
    found = Q()
    for column in ("workflow", "version", "subject_id"):
        if (value := getattr(filters, column)) is not None:
            found &= Q(**{column: value})
    if filters.state:
        found &= Q(state__in=filters.state)
    if filters.cause:
        found &= Q(cause__in=filters.cause)
    if filters.compensation:
        found &= Q(compensation__in=filters.compensation)
    if filters.parent:
        found &= Q(parent_run=filters.parent)
    # Ids begin with the time that they were made at, which bounds what is read.
    if filters.since:
        found &= Q(submitted_at__gte=filters.since, id__gte=first_id(filters.since, -ID_SLACK))
    if filters.until:
        found &= Q(submitted_at__lte=filters.until, id__lte=first_id(filters.until, ID_SLACK))
    return found


def _label(key: str, value: str) -> Q:
    """The label has the value. What was cut at its first ``:`` or ``=`` may have had that sign in the key."""
    found = _label_is(key, value)
    for cut in [at for at, sign in enumerate(value) if sign in ":="][:8]:
        for sign in ":=":
            found |= _label_is(f"{key}{sign}{value[:cut]}", value[cut + 1 :])
    return found


def _label_is(key: str, value: str) -> Q:
    """As text, or as the number or truth value that the text spells."""
    found = Q(labels__contains={key: value})
    try:
        typed = json.loads(value)
    except ValueError:
        return found
    if isinstance(typed, int | float | bool) and typed == typed and abs(typed) < 1e300:
        found |= Q(labels__contains={key: typed})
    return found


def _at_step(filters: RunFilters) -> Q:
    rows = Step.objects.filter(run=OuterRef("pk"))
    if filters.step:
        rows = rows.filter(step=filters.step)
    if filters.waiting_longer_than is not None:
        rows = rows.filter(state__in=STEP_OPEN, created_at__lt=Now() - timedelta(seconds=filters.waiting_longer_than))
    if filters.step_state:
        rows = rows.filter(state__in=filters.step_state)
    elif filters.waiting_longer_than is None:
        # By way of the live runs, which are few; in an OR the rows of every run would be read.
        live_there = Run.objects.filter(Exists(rows.filter(state__in=STEP_OPEN)), state__in=LIVE)
        return Q(current_step=filters.step) | Q(pk__in=live_there.values("pk"))
    # A step that waits is a live run's: said, so that the small index of live runs is used.
    live = Q(state__in=LIVE) if filters.waiting_longer_than is not None else Q()
    return live & Q(Exists(rows))


def text_condition(text: str) -> Q:
    """What ``q`` means; also the search of the admin."""
    try:
        return Q(id=uuid.UUID(text)) | Q(subject_id=text) | Q(idempotency_key=text)
    except ValueError:
        pass
    found = Q(subject_id__icontains=text) | Q(workflow__icontains=text) | Q(idempotency_key=text)
    digits = text.lower().replace("-", "")
    if 4 <= len(digits) < 32 and all(c in "0123456789abcdef" for c in digits):
        found |= Q(id__gte=uuid.UUID(digits.ljust(32, "0")), id__lte=uuid.UUID(digits.ljust(32, "f")))
    return found
