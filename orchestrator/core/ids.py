"""Run ids: UUIDs of version 7, so that ids sort by time of submission and lists page by id alone."""

from __future__ import annotations

import os
import threading
import time
import uuid
from datetime import datetime

from orchestrator.core.errors import NotFound

_last = [0]
_lock = threading.Lock()


def first_id(moment: datetime, later: float = 0.0) -> uuid.UUID:
    """The smallest id that can be made ``later`` seconds after a moment: ids made before are below it."""
    ms = max(0, min(int((moment.timestamp() + later) * 1000), 0xFFFFFFFFFFFF))
    return uuid.UUID(int=ms << 80)


def new_run_id(now_ms: int | None = None) -> uuid.UUID:
    """A fresh UUIDv7, above every earlier one of this process. ``now_ms`` (Unix milliseconds) is for tests."""
    ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    rand = int.from_bytes(os.urandom(10), "big")
    value = (ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | (rand >> 68 & 0xFFF) << 64 | 0b10 << 62 | rand & (1 << 62) - 1
    if now_ms is None:
        with _lock:
            # Two in one millisecond: the second counts on from the first, so that ids keep the order of submission.
            value = _last[0] = max(value, _last[0] + 1)
    return uuid.UUID(int=value)


def parse_run_id(text: uuid.UUID | str) -> uuid.UUID:
    """The id of a run as somebody gives it.

    Raises:
        NotFound: no run can have it.
    """
    try:
        return text if isinstance(text, uuid.UUID) else uuid.UUID(str(text))
    except ValueError:
        raise NotFound(f"there is no run {str(text)[:100]!r}; the id of a run is a UUID") from None


def no_such_run(run_id: uuid.UUID | str) -> NotFound:
    """The refusal of an id that no run has, to be raised."""
    return NotFound(f"there is no run {run_id}; it may never have arrived, or is older than the retention")
