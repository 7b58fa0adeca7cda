"""Lists of dead letters, latest first, for the API and the command line. The page adds grouping of its own."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet

from orchestrator.core.errors import Invalid, NotFound
from orchestrator.core.mask import mask_error, mask_text
from orchestrator.core.states import DeadLetterState
from orchestrator.engine.find import MAX_PAGE, patiently
from orchestrator.models import DeadLetter


@dataclass(frozen=True)
class DeadLetterFilters:
    """What to look for; everything given must hold. ``state`` None means any, of ``fingerprints`` any one."""

    state: str | None = DeadLetterState.OPEN
    workflow: str | None = None
    step: str | None = None
    cause: str | None = None
    run: uuid.UUID | None = None
    fingerprint: str | None = None
    version: int | None = None
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeadLetterPage:
    """Some dead letters and the cursor of the next page; ``None`` when there is none."""

    items: list[DeadLetter]
    next_cursor: str | None


def matching(filters: DeadLetterFilters) -> QuerySet[DeadLetter]:
    """The dead letters that match, latest first, each with its run."""
    given = {name: value for name, value in vars(filters).items() if value is not None and name != "fingerprints"}
    if filters.fingerprints:
        given["fingerprint__in"] = filters.fingerprints
    return DeadLetter.objects.filter(**given).select_related("run").order_by("-last_at", "-id")


def page(filters: DeadLetterFilters, cursor: str | None = None, limit: int = 50) -> DeadLetterPage:
    """One page.

    Raises:
        Invalid: for a cursor that is none of ours or a limit outside 1 to 200.
        TooBroad: when it takes too long.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"limit is a whole number from 1 to {MAX_PAGE}", field="limit")
    letters = matching(filters)
    if cursor:
        at, last = _decode(cursor)
        letters = letters.filter(Q(last_at__lt=at) | Q(last_at=at, id__lt=last))
    found = patiently(lambda: list(letters[: limit + 1]))
    return DeadLetterPage(found[:limit], _encode(found[limit - 1]) if len(found) > limit else None)


def get(dead_letter_id: int) -> DeadLetter:
    """One dead letter with its run.

    Raises:
        NotFound: there is none of that id.
    """
    letter = DeadLetter.objects.select_related("run").filter(pk=dead_letter_id).first()
    if letter is None:
        raise NotFound(f"there is no dead letter {dead_letter_id}")
    return letter


def item(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as the API and the command line print it, secrets masked."""
    return {
        "id": letter.pk,
        "run_id": str(letter.run_id),
        "workflow": letter.workflow,
        "version": letter.version,
        "subject_id": letter.run.subject_id,
        "step": letter.step,
        "shard": letter.shard,
        "state": letter.state,
        "cause": letter.cause,
        "error": mask_error(letter.error),
        "fingerprint": letter.fingerprint,
        "attempts": letter.attempts,
        "count": letter.count,
        "first_at": letter.first_at,
        "last_at": letter.last_at,
        "closed_at": letter.closed_at,
        "note": mask_text(letter.note),
    }


def _encode(letter: DeadLetter) -> str:
    text = f"{letter.last_at.astimezone(UTC).isoformat()}/{letter.pk}"
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime, int]:
    try:
        at, _, last = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition("/")
        moment, key = datetime.fromisoformat(at), int(last)
        if moment.tzinfo and 0 < key < 2**63:
            return moment, key
    except ValueError:  # base64, UTF-8, time and number alike
        pass
    raise Invalid("the cursor is not one that a list answered as next_cursor", field="cursor")
