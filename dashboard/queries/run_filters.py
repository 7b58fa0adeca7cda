"""Filters of runs as they stand in an address: ``?workflow=video-upload&state=failed&label=tier:gold``.

The runs page, the API and the bulk actions read them here and nowhere else; what each means is
:class:`orchestrator.engine.find.RunFilters`. A value that cannot be read is refused with the name of its parameter.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import Invalid
from orchestrator.core.states import Cause, RunState, StepState, Undo
from orchestrator.engine.find import (
    MAX_PAGE,
    RunFilters,
    RunPage,
    TooBroad,
    decode_cursor,
    encode_cursor,
    matching,
    page,
)

__all__ = [
    "MAX_PAGE", "NAMES", "RunFilters", "RunPage", "TooBroad", "as_query", "decode_cursor", "encode_cursor", "matching",
    "page", "parse", "parse_limit",
]  # fmt: skip

MAX_TEXT = 500
MAX_DB_INT = 2**31 - 1
MAX_SECONDS = 36500 * 86400


def parse(params: Mapping[str, Iterable[str]]) -> RunFilters:
    """Filters from lists of text by parameter, such as ``dict(request.GET.lists())``. Other parameters are left alone.

    An empty value counts as not given. ``state``, ``cause``, ``compensation`` and ``step_state`` take several values,
    repeated or with commas between them; ``label`` (``key:value``) can be repeated.

    Raises:
        Invalid: for a value that cannot be read, with ``field``.
    """
    values: dict[str, Any] = {}
    for name, read in _READERS.items():
        given = [text for text in params.get(name, ()) if text != ""]
        for text in given:
            _check_text(name, text)
        if given:
            values[name] = read(name, given)
    return RunFilters(**values)


def parse_limit(text: str | None, default: int = 50) -> int:
    """Size of a page, 1 to 200.

    Raises:
        Invalid: for anything else.
    """
    if text is None or text == "":
        return default
    if not re.fullmatch(r"\d{1,3}", text, re.ASCII) or not 1 <= int(text) <= MAX_PAGE:
        raise Invalid(f"limit is a whole number from 1 to {MAX_PAGE}", field="limit")
    return int(text)


def as_query(filters: RunFilters) -> list[tuple[str, str]]:
    """The filters as parameters of an address, for links; :func:`parse` reads them back."""
    pairs: list[tuple[str, str]] = []
    for name in _READERS:
        value = getattr(filters, name)
        if value is None or value == ():
            continue
        if name == "label":
            pairs += [(name, f"{key}:{wanted}") for key, wanted in value]
        elif isinstance(value, tuple):
            pairs += [(name, one) for one in value]
        elif isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, datetime):
            pairs.append((name, value.astimezone(UTC).isoformat().replace("+00:00", "Z")))
        elif isinstance(value, float):
            pairs.append((name, f"{int(value)}s"))
        else:
            pairs.append((name, str(value)))
    return pairs


def _check_text(name: str, text: str) -> None:
    if "\x00" in text:
        raise Invalid(f"{name} holds a NUL character", field=name)
    if len(text) > MAX_TEXT:
        raise Invalid(f"{name} is longer than {MAX_TEXT} characters", field=name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{name} is not valid Unicode text", field=name) from None


def _one(name: str, given: list[str]) -> str:
    if len(given) > 1:
        raise Invalid(f"{name} is given {len(given)} times; give it once", field=name)
    return given[0]


def _words(known: Iterable[str]) -> Callable[[str, list[str]], tuple[str, ...]]:
    allowed = [str(word) for word in known]

    def read(name: str, given: list[str]) -> tuple[str, ...]:
        words = [word.strip() for text in given for word in text.split(",") if word.strip()]
        for word in words:
            if word not in allowed:
                raise Invalid(f"{name} {word!r} is unknown; it is one of {', '.join(allowed)}", field=name)
        return tuple(dict.fromkeys(words))

    return read


def _int(name: str, given: list[str]) -> int:
    text = _one(name, given)
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII) or not 1 <= int(text) <= MAX_DB_INT:
        raise Invalid(f"{name} {text!r} is not a whole number from 1", field=name)
    return int(text)


def _uuid(name: str, given: list[str]) -> uuid.UUID:
    text = _one(name, given)
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Invalid(f"{name} {text!r} is not the id of a run", field=name) from None


def _bool(name: str, given: list[str]) -> bool:
    text = _one(name, given).lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise Invalid(f"{name} {text!r} is neither true nor false", field=name)


def _duration(name: str, given: list[str]) -> float:
    try:
        seconds = parse_duration(_one(name, given))
    except BadDuration as error:
        raise Invalid(f"{name}: {error}", field=name) from None
    if seconds > MAX_SECONDS:
        raise Invalid(f"{name}: {given[0]!r} is over {MAX_SECONDS // 86400} days", field=name)
    return seconds


def _labels(name: str, given: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in given:
        key, sign, value = text.partition(":") if ":" in text else text.partition("=")
        if not sign or not key:
            raise Invalid(f"{name} {text!r} is not key:value, such as tier:gold", field=name)
        pairs.append((key, value))
    return tuple(pairs)


def _moment(name: str, given: list[str]) -> datetime:
    """A time in ISO 8601 (UTC if it does not say), a day, or a duration: that long ago."""
    text = _one(name, given)
    # An unescaped plus sign of an offset arrives as a space.
    text = re.sub(r" (\d\d:?\d\d)$", r"+\1", text) if "T" in text else text
    try:
        if re.fullmatch(r"\d{1,9}[smhd]", text):
            return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return datetime.combine(date.fromisoformat(text), time.max if name == "until" else time.min, UTC)
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{name} {text!r} is not a time; write 2030-01-31T12:00:00Z, 2030-01-31, or 2h for two hours ago",
            field=name,
        ) from None


_READERS: dict[str, Callable[[str, list[str]], Any]] = {
    "workflow": _one,
    "version": _int,
    "state": _words(RunState),
    "cause": _words(Cause),
    "compensation": _words(Undo),
    "subject_id": _one,
    "label": _labels,
    "step": _one,
    "step_state": _words(StepState),
    "waiting_longer_than": _duration,
    "parent": _uuid,
    "overdue": _bool,
    "since": _moment,
    "until": _moment,
    "q": _one,
}
#: Every parameter that is a filter.
NAMES = tuple(_READERS)
