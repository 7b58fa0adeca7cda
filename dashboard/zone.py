"""The reader's time zone: pages show UTC unless a cookie, set by the switch of a page, names a zone."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

COOKIE = "zone"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]{0,30}(/[A-Za-z0-9_+\-]{1,30}){0,2}")


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo | None:
    """The zone of that name; None for UTC and for what is none."""
    if name == "UTC" or not _NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


class ReadersZone:
    """Middleware: times of pages are said in the zone of the cookie. Programs always get UTC."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Django's hook."""
        name = request.COOKIES.get(COOKIE, "")
        zone = zone_of(name) if name and not request.path.startswith("/api/") else None
        if zone is None:
            return self.get_response(request)
        with timezone.override(zone):
            return self.get_response(request)
