"""Checking a request for a run, before anything is touched. Every refusal names the field and says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import Invalid, TooLarge
from orchestrator.core.text import NotStorable, to_json
from orchestrator.engine.db import caller_connection, rows
from orchestrator.engine.plans import latest_definition

MAX_INPUT = 1_048_576
MAX_AFTER = 1000
#: Definitions that a request has looked up: (workflow, version or None) -> id.
Known = dict[tuple[str, int | None], int]


@dataclass(frozen=True)
class Submission:
    """A checked request for one run. Texts are JSON; times are seconds."""

    definition_id: int
    subject_id: str
    input: str
    labels: str
    idempotency_key: str | None
    deadline: float | None
    delay: float
    lock: str | None
    on_lock_conflict: str | None
    after: tuple[UUID, ...]
    #: (run id, step row id or None) of the parent.
    parent: tuple[UUID, int | None] | None
    deadline_cap: datetime | None = None


def check(
    known: Known,
    workflow: str,
    subject_id: str,
    input: Any = None,  # noqa: A002
    idempotency_key: str | None = None,
    version: int | None = None,
    deadline: str | float | timedelta | None = None,
    delay: str | float | timedelta | None = None,
    labels: Any = None,
    lock: str | None = None,
    on_lock_conflict: str | None = None,
    after: Iterable[UUID | str] | None = None,
    parent: tuple[UUID, int | None] | None = None,
) -> Submission:
    """Checks a request; reads definitions, each once into ``known``, and writes nothing. Raises as :func:`submit`."""
    wanted = (_text(workflow, "workflow"), version)
    if wanted not in known:
        known[wanted] = latest_definition(caller_connection(), *wanted)
    return Submission(
        definition_id=known[wanted],
        subject_id=_text(subject_id, "subject_id"),
        input=_input(input),
        labels=_labels(labels),
        idempotency_key=_text(idempotency_key, "idempotency_key") if idempotency_key is not None else None,
        deadline=_seconds(deadline, "deadline", least=1.0) if deadline is not None else None,
        delay=_seconds(delay, "delay", least=0.0) if delay is not None else 0.0,
        lock=_text(lock, "lock") if lock is not None else None,
        on_lock_conflict=_policy(on_lock_conflict),
        after=_after(after),
        parent=parent,
    )


def _text(value: Any, field: str, limit: int = 500) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{field} must be text that is not empty", field=field)
    if len(value) > limit:
        raise Invalid(f"{field} is {len(value):,} characters long; {limit} is the most", field=field)
    try:
        to_json(value, field)
    except NotStorable as problem:
        raise Invalid(str(problem), field=field) from None
    return value


def _after(value: Iterable[UUID | str] | None) -> tuple[UUID, ...]:
    """Runs that must have ended before this one starts. All must be there: one that never was would never end."""
    if value is None:
        return ()
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise Invalid("after is a list of run ids", field="after")
    try:
        wanted = tuple(dict.fromkeys(item if isinstance(item, UUID) else UUID(str(item)) for item in value))
    except ValueError:
        raise Invalid("after is a list of run ids; one of them is none", field="after") from None
    if len(wanted) > MAX_AFTER:
        raise Invalid(f"a run can come after {MAX_AFTER:,} others at most, not {len(wanted):,}", field="after")
    query = "SELECT id FROM workflow_runs WHERE id = ANY(%s)"
    there = {row.id for row in rows(caller_connection(), query, [list(wanted)])} if wanted else set()
    missing = [str(run_id) for run_id in wanted if run_id not in there]
    if missing:
        raise Invalid(f"after names a run that does not exist: {missing[0]}", field="after")
    return wanted


def _policy(value: str | None) -> str | None:
    if value not in (None, "requeue", "reject", "dead_letter"):
        raise Invalid(f"on_lock_conflict is requeue, reject or dead_letter, not {value!r}", field="on_lock_conflict")
    return value


def _input(value: Any) -> str:
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise Invalid(f"input must be an object, not {type(value).__name__}", field="input")
    try:
        text = to_json(dict(value), "input")
    except NotStorable as problem:
        raise Invalid(str(problem), field="input") from None
    size = len(text.encode())
    if size > MAX_INPUT:
        raise TooLarge(f"input is {size:,} bytes; {MAX_INPUT:,} is the most. Store it and pass its key", field="input")
    return text


def _labels(value: Any) -> str:
    value = {} if value is None else value
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise Invalid('labels must be an object of texts, such as {"customer": "42"}', field="labels")
    if len(value) > 50:
        raise Invalid(f"a run takes at most 50 labels, not {len(value)}", field="labels")
    for key, text in value.items():
        _text(key, "labels", 100)
        if text:
            _text(text, "labels")
    return to_json(dict(value), "labels")


def _seconds(value: str | float | timedelta, field: str, least: float) -> float:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        try:
            seconds = parse_duration(value)
        except BadDuration as problem:
            raise Invalid(f"{field}: {problem}", field=field) from None
    if not least <= seconds <= 10 * 365 * 86400:
        raise Invalid(f"{field} must be between {least:g} seconds and ten years", field=field)
    return seconds
