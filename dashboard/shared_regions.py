"""One answer for all who watch the same page: of many open pages one draws a region, the others get a copy.

A region that asks again (htmx) is answered before sessions, users and queries, when both are known: that this session
could read the page a moment ago, and what the page showed to somebody with the same role, groups and zone. Nobody
gets the copy that he has already, or an older one (the moment stands in the tag): a single reader always gets a new
answer, and what somebody just did never seems undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from django.conf import settings
from django.core.cache import cache, caches
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CSRF_SECRET_LENGTH, get_token

from dashboard.access import groups_of, role_of
from dashboard.render import ASKED_AT, MAY_SHARE, READERS_TOKEN, TAG, is_fragment, make_tag, read_stamp, stamp
from dashboard.zone import COOKIE as ZONE

#: Seconds that a copy is handed out to others; about the tick of a page.
SHARED = 3.0
#: Seconds that a session's access is taken on trust by regions that ask again.
TRUSTED = 30
#: Larger answers are not kept.
MOST_BYTES = 256 * 1024
#: Headers that belong to one reader or one answer.
_OWN = ("Set-Cookie", "Content-Length", TAG)
#: In ``request.META``: this request draws the region anew for all.
_DRAWS = "switchyard.draws"


@dataclass(frozen=True)
class Copy:
    """What a region showed at a moment (Unix seconds). ``body`` is None where only the tag is known."""

    tag: str
    moment: float
    headers: dict[str, str]
    body: bytes | None


class SharedRegions:
    """Middleware, before sessions: answers from a copy, and keeps copies of what a view calls shared."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answers a session that is trusted; else the request goes its way, and what came of it is kept."""
        if request.method != "GET" or not request.COOKIES.get(settings.SESSION_COOKIE_NAME) or not is_fragment(request):
            return self.get_response(request)
        request.META[ASKED_AT] = time.time()
        trusted = _trusted(request)
        reader: str | None = caches["readers"].get(trusted)
        if reader is not None and (answer := _from_copy(request, reader)) is not None:
            return answer
        response = self.get_response(request)
        if MAY_SHARE in request.META:
            reader = _reader(request)
            caches["readers"].set(trusted, reader, TRUSTED)
            _keep(_key(request, reader), response)
            _sign(request, response)
        return response

    def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        """A session that is not trusted yet, or no more: with its user known it may have a copy too."""
        if ASKED_AT not in request.META or _DRAWS in request.META or not request.user.is_authenticated:
            return None
        reader = _reader(request)
        answer = _from_copy(request, reader)
        if answer is not None:
            caches["readers"].set(_trusted(request), reader, TRUSTED)
        return answer


def _trusted(request: HttpRequest) -> str:
    return make_tag(request.COOKIES[settings.SESSION_COOKIE_NAME], _zone(request))


def _zone(request: HttpRequest) -> str:
    return request.COOKIES.get(ZONE, "")


def _reader(request: HttpRequest) -> str:
    """All that a shared region may depend on. Who has no role gets no region, so none is kept for him."""
    return make_tag(role_of(request.user), sorted(groups_of(request.user)), _zone(request))


def _key(request: HttpRequest, reader: str) -> str:
    return f"region:{make_tag(reader, request.get_full_path())}"


def _from_copy(request: HttpRequest, reader: str) -> HttpResponse | None:
    key = _key(request, reader)
    copy: Copy | None = cache.get(key)
    if copy is None:
        return None
    seen, moment = read_stamp(request.headers.get(TAG, ""))
    if copy.moment <= moment:
        return None
    if time.time() - copy.moment > SHARED and cache.add(f"{key}:drawn", True, SHARED):
        request.META[_DRAWS] = True  # those who ask meanwhile still get the copy
        return None
    headers = {**copy.headers, TAG: stamp(copy.tag, copy.moment)}
    if copy.tag and copy.tag == seen:
        return HttpResponse(status=304, headers={TAG: headers[TAG]})
    if copy.body is None:
        return None
    response = HttpResponse(copy.body, headers=headers)
    if not _sign(request, response):
        return None
    response["Content-Length"] = str(len(response.content))  # or it goes out in chunks
    return response


def _keep(key: str, response: HttpResponse) -> None:
    tag, moment = read_stamp(response.get(TAG, ""))
    headers = {name: value for name, value in response.items() if name not in _OWN}
    if response.status_code == 200 and len(response.content) <= MOST_BYTES:
        cache.set(key, Copy(tag, moment, headers, response.content), 2 * SHARED)
    elif response.status_code == 304 and tag:
        old: Copy | None = cache.get(key)
        if old is None or old.tag != tag:
            old = Copy(tag, moment, {}, None)
        cache.set(key, replace(old, moment=moment), 2 * SHARED)


def _sign(request: HttpRequest, response: HttpResponse) -> bool:
    """Puts the reader's own token where the shared one stands; False where he has none yet."""
    if (place := READERS_TOKEN.encode()) not in response.content:
        return True
    if "CSRF_COOKIE" not in request.META:
        secret = request.COOKIES.get(settings.CSRF_COOKIE_NAME, "")
        if len(secret) != CSRF_SECRET_LENGTH or not (secret.isascii() and secret.isalnum()):
            return False
        request.META["CSRF_COOKIE"] = secret
    response.content = response.content.replace(place, get_token(request).encode())
    if "Content-Length" in response:
        response["Content-Length"] = str(len(response.content))
    return True
