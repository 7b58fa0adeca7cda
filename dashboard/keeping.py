"""What need not be asked twice: within one request, and for a few seconds where there is much to count."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from django.core.cache import cache
from django.http import HttpRequest, HttpResponseBase

T = TypeVar("T")
#: From this many on a count is kept: it costs most and changes least.
MANY = 1_000
#: Seconds that it is kept.
KEPT = 5
_request: ContextVar[dict[str, Any] | None] = ContextVar("switchyard_request", default=None)


class OncePerRequest:
    """Middleware: gives every request a place for what :func:`once` has read."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Django's hook."""
        token = _request.set({})
        try:
            return self.get_response(request)
        finally:
            _request.reset(token)


def once(key: str, read: Callable[[], T]) -> T:
    """What ``read`` answers, the same for the rest of the request; outside of one it is read each time."""
    kept = _request.get()
    if kept is None:
        return read()
    if key not in kept:
        kept[key] = read()
    answer: T = kept[key]
    return answer


def kept_if_many(key: str, read: Callable[[], T], count: Callable[[T], int]) -> T:
    """What ``read`` answers; kept for :data:`KEPT` seconds where ``count`` of it is :data:`MANY` or more."""
    kept: T | None = cache.get(key)
    if kept is not None:
        return kept
    found = read()
    if count(found) >= MANY:
        cache.set(key, found, KEPT)
    return found
