"""Reads the keys of one mapping of a definition, each by its type, and notes what is wrong with a line and a reason."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any

from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.definitions.errors import Problems
from orchestrator.definitions.load import Map, Seq

MAX_DURATION = 3650 * 86400.0
MAX_RETRIES = 10_000
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
DOTTED = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
NAME_HINT = "letters, digits, - and _"
DOTTED_HINT = "letters, digits and . : - _"


def show(value: Any) -> str:
    """A value as it may stand in a message: short, whatever it is."""
    if isinstance(value, Map):
        return "a mapping"
    if isinstance(value, Seq):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:56] + "…" + text[-1]


class Fields:
    """The keys of one mapping. Each reader takes a key and a default, and gives the default after noting a mistake.

    ``where`` begins each message ("step 'probe': "); :meth:`finish` refuses the keys that no reader asked for.
    """

    def __init__(self, problems: Problems, data: Map, where: str = "") -> None:
        self.problems = problems
        self.data = data
        self.where = where
        self._known: list[str] = []

    def line(self, key: str | None = None) -> int:
        """Line of a key, or of the mapping itself."""
        return self.data.lines.get(key, self.data.line) if key is not None else self.data.line

    def bad(self, key: str | None, reason: str) -> None:
        """Note a mistake at a key (None: the mapping as a whole)."""
        self.problems.add(self.line(key), f"{self.where}{f'`{key}` ' if key else ''}{reason}")

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self.data

    def raw(self, key: str) -> Any:
        """The value as written, None when absent; a key without a value is a mistake."""
        self._known.append(key)
        value = self.data.get(key)
        if value is None and key in self.data:
            self.bad(key, "has no value; give one or leave the key out")
        return value

    def known(self, *keys: str) -> None:
        """Accept keys that are read elsewhere or have been refused by a better message."""
        self._known.extend(keys)

    def finish(self) -> None:
        """Refuse every key that nobody asked for."""
        for key in self.data:
            if key in self._known:
                continue
            near = difflib.get_close_matches(key, self._known, 1) if len(key) <= 40 else []
            hint = f"; did you mean `{near[0]}`?" if near else f"; known here: {', '.join(sorted(set(self._known)))}"
            self.problems.add(self.line(key), f"{self.where}unknown key {show(key)}{hint}")

    def text(self, key: str, default: str | None = None, *, limit: int = 2000) -> str | None:
        """Text that is not empty, ``limit`` characters at most."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.bad(key, f"must be text, not {show(value)}{'; quote it' if _scalar(value) else ''}")
        elif not value.strip():
            self.bad(key, "is empty; give a text or leave the key out")
        elif len(value) > limit:
            self.bad(key, f"is longer than {limit:,} characters")
        else:
            return value
        return default

    def name(self, key: str, default: str | None = None, *, dotted: bool = False) -> str | None:
        """A name: of a step, handler, queue or topic. A bare number is taken as its text."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        pattern, hint = (DOTTED, DOTTED_HINT) if dotted else (NAME, NAME_HINT)
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        self.bad(key, f"must be a name of {hint}, not {show(value)}")
        return default

    def integer(self, key: str, default: int | None, *, low: int, high: int) -> int | None:
        """A whole number between two bounds, both included."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.bad(key, f"must be a whole number, not {show(value)}")
        elif not low <= value <= high:
            self.bad(key, f"must be from {low:,} to {high:,}, not {value:,}")
        else:
            return value
        return default

    def number(self, key: str, default: float, *, low: float, high: float) -> float:
        """A number between two bounds, both included."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.bad(key, f"must be a number, not {show(value)}")
        elif not low <= value <= high:
            self.bad(key, f"must be from {low:g} to {high:g}, not {value:g}")
        else:
            return float(value)
        return default

    def boolean(self, key: str, default: bool) -> bool:
        """``true`` or ``false``."""
        value = self.raw(key)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.bad(key, f"must be true or false, not {show(value)}")
        return default

    def choice(self, key: str, default: str | None, *options: str) -> str | None:
        """One of these words."""
        value = self.raw(key)
        if value in options or value is None:
            return default if value is None else str(value)
        self.bad(key, f"must be {', '.join(options[:-1])} or {options[-1]}, not {show(value)}")
        return default

    def duration(self, key: str, default: float | None, *, zero: bool = False) -> float | None:
        """Seconds. ``zero``: whether 0s makes sense here."""
        value = self.raw(key)
        return default if value is None else self.as_duration(key, value, default, zero=zero)

    def as_duration(self, key: str, value: Any, default: float | None, *, zero: bool = False) -> float | None:
        """Seconds of a value that has been read already."""
        try:
            seconds = parse_duration(value)
        except BadDuration:
            what = show(value)
            self.bad(key, f"{what} is not a duration; write a whole number and s, m, h or d, such as 90s or 2h")
            return default
        if seconds > MAX_DURATION:
            self.bad(key, f"{show(value)} is longer than 3650d")
        elif seconds == 0 and not zero:
            self.bad(key, "must be longer than 0s")
        else:
            return seconds
        return default

    def inner(self, key: str, value: Any, what: str) -> Fields | None:
        """The readers of a mapping below this key; None, with a mistake noted, when it is no mapping."""
        if isinstance(value, Map):
            return Fields(self.problems, value, f"{self.where}`{key}`: ")
        self.bad(key, f"must be {what}, not {show(value)}")
        return None

    def each(self, key: str, value: Any, read: Callable[[Any, int], Any]) -> list[Any]:
        """``read(item, line)`` for each item of a list, or for the value itself when it is not one."""
        if not isinstance(value, Seq):
            return [read(value, self.line(key))]
        return [read(item, line) for item, line in zip(value, value.lines, strict=True)]


def _scalar(value: Any) -> bool:
    return not isinstance(value, (Map, Seq))
