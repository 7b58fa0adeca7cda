"""What the shards of a fan-out are called."""

from __future__ import annotations

import json
from typing import Any

MAX_ITEMS = 100_000
_MAX_NAME = 200


def shard_names(items: list[Any]) -> list[str]:
    """The items as text where all are unique scalars, else their indexes.

    Text that would be empty, very long or not storable counts as not fit for a name.
    """
    names = [_name(item) for item in items]
    fit = all(n is not None for n in names) and len(set(names)) == len(names)
    return [str(n) for n in names] if fit else [str(i) for i in range(len(items))]


def _name(item: Any) -> str | None:
    if isinstance(item, str):
        ok = 0 < len(item) <= _MAX_NAME and "\x00" not in item and not any("\ud800" <= c <= "\udfff" for c in item)
        return item if ok else None
    if item is None or isinstance(item, (bool, int, float)):
        return json.dumps(item)
    return None
