"""Render a page, or only its live region, from the same template file."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import render

PAGE, FRAGMENT = "base.html", "components/fragment.html"
#: Header of what a region shows: ``<tag>.<moment>``, the moment in Unix seconds.
TAG = "HX-PTag"
#: Stands in a shared region where each reader gets a token of his own against forged requests. Nobody can guess it, and
#: so have his token put where others read it, into a link say.
READERS_TOKEN = secrets.token_hex(16)
#: In ``request.META``: when a region asked (Unix seconds), and that its answer may be shared.
ASKED_AT, MAY_SHARE = "switchyard.asked_at", "switchyard.may_share"


def is_fragment(request: HttpRequest) -> bool:
    """Whether a live region asks (htmx), not a window."""
    return "HX-Request" in request.headers and "HX-History-Restore-Request" not in request.headers


def live_page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    tag: str = "",
    live: bool = True,
    shared: bool = False,
) -> HttpResponse:
    """The page, or for htmx the content of its ``live`` block alone.

    ``template`` starts with ``{% extends layout %}`` and fills ``{% block live %}``. ``tag`` is what
    :func:`not_modified` compared; it goes out so that the region can ask again with it. ``live=False`` does not poll:
    for answers that are dear, such as a search through text. ``shared``: the region is the same for all of one role,
    groups and zone, so that one of many open pages draws it (``dashboard.shared_regions``).
    """
    fragment = is_fragment(request)
    stamped = stamp(tag, _asked_at(request) if fragment else time.time())
    context = {**context, "layout": FRAGMENT if fragment else PAGE, "live": live, "live_tag": stamped}
    if shared and fragment:
        context["csrf_token"] = READERS_TOKEN
    response = render(request, template, context)
    response["Vary"] = "HX-Request, Cookie"
    response["Cache-Control"] = "no-store"
    response[TAG] = stamped
    return _share(request, response) if shared and fragment else response


def not_modified(request: HttpRequest, tag: str, *, shared: bool = False) -> HttpResponse | None:
    """304 for a region that already shows what ``tag`` stands for, else nothing. ``shared`` as for the page."""
    if is_fragment(request) and read_stamp(request.headers.get(TAG, ""))[0] == tag:
        response = HttpResponse(status=304, headers={TAG: stamp(tag, _asked_at(request))})
        return _share(request, response) if shared else response
    return None


def make_tag(*parts: Any) -> str:
    """A short tag of anything that can be printed; equal parts give an equal tag."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=9).hexdigest()


def stamp(tag: str, moment: float) -> str:
    """A tag with the moment that was looked at."""
    return f"{tag}.{moment:.3f}"


def read_stamp(text: str) -> tuple[str, float]:
    """The tag and the moment of a header; 0.0 for a moment that is none."""
    tag, _, moment = text.partition(".")
    try:
        return tag, float(moment)
    except ValueError:
        return tag, 0.0


def _asked_at(request: HttpRequest) -> float:
    asked: float = request.META.get(ASKED_AT) or time.time()
    return asked


def _share(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    if READERS_TOKEN.encode() in response.content:
        get_token(request)  # so that a reader without one is sent his cookie
    request.META[MAY_SHARE] = True
    return response
