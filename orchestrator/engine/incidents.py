"""What people note about failures that belong together: who looks after them, what they found, where it is fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict, Invalid
from orchestrator.core.text import clean
from orchestrator.engine import audit
from orchestrator.models import DeadLetter, Incident

MAX_NOTE, MAX_WORD, MOST_ALIKE = 5000, 120, 100


def note_incident(
    fingerprints: Sequence[str],
    actor: Actor,
    *,
    owner: str = "",
    note: str = "",
    fixed_in: str = "",
    seen: datetime | None = None,
) -> Incident:
    """Writes down what is known of the failures with these fingerprints, and adds them to the incident of any of them.

    ``fixed_in`` newly given: what fails alike from now on came back. ``seen`` is the ``updated_at`` of the row that the
    actor was shown, None for none.

    Raises:
        NotAllowed: role below support.
        Invalid: no fingerprints, unknown ones, nothing to note, or text that is too long.
        Conflict: somebody has changed it meanwhile.
    """
    require(actor, "support")
    alike = list(dict.fromkeys(fingerprints))
    given = {"owner": clean(owner.strip()), "note": clean(note.strip()), "fixed_in": clean(fixed_in.strip())}
    _check(alike, given)
    with transaction.atomic():
        # Locked in the order of their ids, so that two who note at once wait for one another.
        rows = list(Incident.objects.select_for_update().filter(fingerprints__overlap=alike).order_by("pk"))
        row = rows[-1] if rows else None
        if (row.updated_at if row else None) != seen:
            raise Conflict(f"{row.updated_by if row else 'somebody'} has changed this meanwhile; look again")
        if row is None:
            if not any(given.values()):
                raise Invalid("there is nothing to note: give an owner, a note or what holds the fix", field="note")
            row = Incident(fingerprints=alike, owner="", note="", fixed_in="", fixed_at=None)
        before = _shown(row)
        newly = bool(given["fixed_in"]) and given["fixed_in"] != row.fixed_in
        row.fixed_at = Now() if newly else row.fixed_at if given["fixed_in"] else None
        row.owner, row.note, row.fixed_in = given["owner"], given["note"], given["fixed_in"]
        row.fingerprints = list(dict.fromkeys([*row.fingerprints, *alike]))[-MOST_ALIKE:]
        row.updated_at, row.updated_by = Now(), actor.name
        row.save()
        row.refresh_from_db()
        changes = {"before": before if any(before.values()) else None, "after": _shown(row)}
        audit.note(f"incident {row.pk}", "note_incident", actor, row.note, **changes)
    return row


def incidents_of(fingerprints: Iterable[str]) -> dict[str, Incident]:
    """What is noted by fingerprint; of several the latest. One query."""
    alike = list(fingerprints)
    found: dict[str, Incident] = {}
    for row in Incident.objects.filter(fingerprints__overlap=alike).order_by("pk") if alike else []:
        found |= dict.fromkeys(row.fingerprints, row)
    return found


def _shown(row: Incident) -> dict[str, Any]:
    return {"owner": row.owner, "note": row.note, "fixed_in": row.fixed_in}


def _check(alike: list[str], given: dict[str, str]) -> None:
    if not alike:
        raise Invalid("say which failures this is about", field="fingerprint")
    if len(alike) > MOST_ALIKE:
        raise Invalid(f"{len(alike)} kinds of failure are over {MOST_ALIKE}; note them in parts", field="fingerprint")
    for name, most in (("owner", MAX_WORD), ("fixed_in", MAX_WORD), ("note", MAX_NOTE)):
        if len(given[name]) > most:
            raise Invalid(f"{name.replace('_', ' ')} is longer than {most:,} characters", field=name)
    known = DeadLetter.objects.filter(fingerprint__in=[clean(text) for text in alike])
    if set(alike) - set(known.values_list("fingerprint", flat=True).distinct()):
        raise Invalid("no failure has this fingerprint, or none any more", field="fingerprint")
