"""Values taken from a run: paths such as ``probe.renditions`` and templates such as ``"video:{subject_id}"``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

FIELD = re.compile(r"\{([A-Za-z0-9_][A-Za-z0-9_.\-]*)\}")
MISSING = object()


def follow(value: Any, path: list[str]) -> Any:
    """The value at a path of keys and indexes; :data:`MISSING` where it leads nowhere."""
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value


def render(template: Any, resolve: Callable[[str], Any]) -> Any:
    """Fills the ``{fields}`` of every string inside ``template``; one lone field keeps its JSON type."""
    if isinstance(template, str):
        lone = FIELD.fullmatch(template)
        if lone:
            return resolve(lone[1])
        return FIELD.sub(lambda m: _text(resolve(m[1])), template)
    if isinstance(template, list):
        return [render(t, resolve) for t in template]
    if isinstance(template, dict):
        return {k: render(v, resolve) for k, v in template.items()}
    return template


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
