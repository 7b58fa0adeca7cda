"""Checks the placeholders that authors write; ``core.templates`` fills them in when a run gets there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.core.templates import FIELD

_PART = r"[A-Za-z0-9_-]+"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")
_BRACES = re.compile(r"[{}]")


class BadTemplate(ValueError):
    """Text with braces that are no placeholder, or a reference that is no name; the message says what to write."""


@dataclass(frozen=True)
class Placeholder:
    """``{root.path.path}``."""

    root: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.root, *self.path))


def parse_reference(text: str) -> Placeholder:
    """``probe.renditions`` in its parts.

    Raises:
        BadTemplate: when it is not names joined by dots.
    """
    if not _NAME.fullmatch(text):
        raise BadTemplate(f"{_short(text)!r} is not a reference; write a step's id or step.path, such as probe.count")
    root, *path = text.split(".")
    return Placeholder(root, tuple(path))


def placeholders(value: Any) -> Iterator[Placeholder]:
    """Every placeholder in the texts of a JSON value (keys are left alone).

    Raises:
        BadTemplate: for a brace that belongs to no placeholder. There is no way to write a plain brace.
    """
    if isinstance(value, str):
        for match in FIELD.finditer(value):
            if not _NAME.fullmatch(match[1]):
                raise BadTemplate(f"{_short(match[0])!r} is not a placeholder; write {{subject_id}} or {{step.path}}")
            yield parse_reference(match[1])
        rest = FIELD.sub("", value)
        brace = _BRACES.search(rest)
        if brace:
            raise BadTemplate(
                f"{_short(rest[brace.start() :])!r} has a brace that belongs to no placeholder; "
                "write placeholders as {subject_id} or {step.path}, without spaces"
            )
    elif isinstance(value, dict):
        for child in value.values():
            yield from placeholders(child)
    elif isinstance(value, list):
        for child in value:
            yield from placeholders(child)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
