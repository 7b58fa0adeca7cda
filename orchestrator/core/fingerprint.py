"""Failures that are the same failure: a step and an error text without what differs from run to run."""

from __future__ import annotations

import hashlib
import re

_VARIES = [
    (re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"(['\"]).{1,200}?\1"), "<text>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
]


def normalise(message: str) -> str:
    """The first line of a message with ids, addresses, quoted text and numbers taken out."""
    line = message.strip().split("\n", 1)[0][:500]
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return line


def fingerprint(workflow: str, step: str, cause: str, error_type: str, message: str) -> str:
    """16 hex digits, the same for failures that are alike."""
    text = "\x1f".join((workflow, step, cause, error_type, normalise(message)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
