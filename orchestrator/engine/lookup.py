"""Where is it, whatever somebody pastes: a run id, a subject, a label's value; and why there is nothing, if so."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import Q, QuerySet

from orchestrator.core.errors import NotFound
from orchestrator.engine import subjects
from orchestrator.engine.clock import record_now
from orchestrator.engine.describe import for_items
from orchestrator.engine.explain import where
from orchestrator.engine.explain_words import clock_zone
from orchestrator.engine.find import TooBroad, patiently
from orchestrator.engine.subjects import SubjectAnswer
from orchestrator.models import AuditRecord, Run
from orchestrator.models.run import LABEL_VALUES

#: Runs that are found by a label; a label of more runs than this is common.
RUNS, COMMON = 50, 1_000
#: What comes along when something is copied out of a mail or a chat.
_AROUND = " \t\r\n\u00a0\u200b\u200c\u200d\u2060\ufeff\"'`<>“”‘’«»,;#"
_PAIR = re.compile(r"\s*([^:=]*[^:=\s])\s*[:=]\s*(\S.*?)\s*", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Lookup:
    """One of these: ``about`` answers; ``runs`` (newest first) have the label ``key``, for several subjects."""

    about: SubjectAnswer | None = None
    runs: tuple[Run, ...] = ()
    key: str = ""


def look_up(text: str) -> Lookup:
    """What is meant by the text: as it is, then without what was pasted around it.

    Raises:
        NotFound: nothing has it as its id, its subject or the value of a label.
    """
    tried = list(dict.fromkeys([text, text.strip(), text.strip(_AROUND)]))
    for one in filter(None, tried):
        found = _by_id(one)
        if found is None:
            try:
                found = subjects.about(one)
            except NotFound:
                continue
        return Lookup(found)
    bare = tried[-1]
    inside = _UUID.search(bare)
    if inside and (found := _by_id(inside[0])) is not None:
        return Lookup(found)
    return _by_label(bare)


def _by_id(text: str) -> SubjectAnswer | None:
    try:
        run = Run.objects.filter(pk=uuid.UUID(text)).first()
    except ValueError:
        return None
    if run is None:
        return None
    told = where(run)
    return SubjectAnswer(run.subject_id, run, told, f"{told.sentence} {told.next}".strip(), [run])


def _by_label(text: str) -> Lookup:
    """Runs that have the text as a label's value, whatever the label's key; or ``key:value``, or ``key=value`` as the
    command line writes it. An address is found in small letters, too.
    """
    labelled = Run.objects.alias(label_values=LABEL_VALUES).exclude(labels={})
    condition = Q(label_values__contains=[text])  # index: workflow_runs_label_values
    if "@" in text and text != text.lower():
        condition |= Q(label_values__contains=[text.lower()])
    pair = _PAIR.fullmatch(text)
    key, value = pair.groups() if pair else ("", "")
    if pair:
        condition |= Q(labels__contains={key: value})  # index: workflow_runs_labels
    runs = _newest(labelled.filter(condition))
    if not runs:
        raise NotFound(f"nothing is known of {text[:200]!r}")
    if len({run.subject_id for run in runs}) == 1:
        return Lookup(subjects.about(runs[0].subject_id))
    held = next((name for name, one in runs[0].labels.items() if one in (text, text.lower())), key)
    return Lookup(None, tuple(runs), held)


def _newest(matching: QuerySet[Run]) -> list[Run]:
    """The newest :data:`RUNS` of them.

    By id only after all that match were found: the planner would walk all runs from the newest instead, which is
    right only where very many match.
    """
    found = patiently(lambda: list(matching.order_by().values_list("pk", flat=True)[: COMMON + 1]))
    if len(found) > COMMON:
        with suppress(TooBroad):
            found = patiently(lambda: list(matching.order_by("-id").values_list("pk", flat=True)[:RUNS]))
    return list(for_items(Run.objects.filter(pk__in=sorted(found)[-RUNS:]).order_by("-id")))


@dataclass(frozen=True)
class Absence:
    """Why nothing is there, as far as the record proves it: ``kind`` is never, pruned or either."""

    kind: str
    title: str
    text: str


def absence(text: str) -> Absence:
    """Why no run answers to the text. Ids say when they were made; of other texts only what was deleted is known."""
    now, cut = record_now(), pruned_before()
    said = f"Runs that ended before {clock_zone(cut, now)} have been deleted" if cut else "No run has ever been deleted"
    found = _UUID.search(text.strip(_AROUND))
    if found:
        made = _made_at(uuid.UUID(found[0]))
        if made is None:
            why = "No run could have this id: ids of runs carry the time at which they were made, and this one does not"
            return Absence("never", "Never arrived", f"{why}. It may be the id of something else.")
        when = f"It would be of {clock_zone(made, now)}"
        if cut is not None and made < cut:
            return Absence("pruned", "Older than the retention", f"{when}. {said}.")
        why = "there is no such run: it was refused or rolled back, or is of another installation"
        return Absence("never", "Never arrived", f"{when}, but {why}.")
    no = "No run has this as its id, its subject or the value of a label"
    if cut is None:
        return Absence("never", "Never arrived", f"{no}. {said}, so it has not come here under this name.")
    return Absence("either", "Not here", f"{no}. {said}: it never arrived, or it is older than that.")


def pruned_before() -> datetime | None:
    """Runs that ended before this have been deleted; None: nothing was ever pruned, as far as is recorded."""
    rows = AuditRecord.objects.exclude(actor="engine").filter(action="prune", subject="runs").order_by("-id")
    record = rows.only("before").first()
    try:
        return datetime.fromisoformat(record.before["ended_before"]) if record and record.before else None
    except (KeyError, TypeError, ValueError):
        return None


def _made_at(run_id: uuid.UUID) -> datetime | None:
    """When an id was made; None for one that cannot be a run's."""
    if run_id.version != 7:
        return None
    try:
        return datetime.fromtimestamp((run_id.int >> 80) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
