"""Durations as people write them: an integer and one of s, m, h, d. Inside, always seconds."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PATTERN = re.compile(r"([0-9]{1,9})([smhd])")


class BadDuration(ValueError):
    """Text that is not a duration; the message shows what one looks like."""


def parse_duration(text: object) -> float:
    """Seconds of ``"90s"``, ``"15m"``, ``"2h"`` or ``"1d"``.

    Raises:
        BadDuration: for anything else.
    """
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise BadDuration(f"{text!r} is not a duration; write a whole number and s, m, h or d, such as 90s or 2h")
    return float(int(match[1]) * _UNITS[match[2]])


def format_duration(seconds: float) -> str:
    """A duration for people, two units at most: ``"2 h 5 m"``, ``"42 s"``, ``"0.3 s"``, ``"under 0.1 s"``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if 0 < seconds < 0.05:
        return "under 0.1 s"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    left, parts = round(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"
