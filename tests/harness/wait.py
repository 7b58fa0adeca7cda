"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], timeout: float = 10.0, *, interval: float = 0.03, why: Callable[[], object] | str = ""
) -> T:
    """The first true answer of ``condition``. Fails the test after ``timeout`` seconds, with what ``why`` says then."""
    end = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            detail = why() if callable(why) else why
            raise AssertionError(f"not within {timeout:g} s: {detail or condition}; last answer {answer!r}")
        time.sleep(interval)
