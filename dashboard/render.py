"""Render a page, or only its live region, from the same template file."""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

PAGE, FRAGMENT = "base.html", "components/fragment.html"


def is_fragment(request: HttpRequest) -> bool:
    """Whether a live region asks (htmx), not a window."""
    return "HX-Request" in request.headers and "HX-History-Restore-Request" not in request.headers


def live_page(
    request: HttpRequest, template: str, context: dict[str, Any], *, tag: str | None = None, live: bool = True
) -> HttpResponse:
    """The page, or for htmx the content of its ``live`` block alone.

    ``template`` starts with ``{% extends layout %}`` and fills ``{% block live %}``. ``tag`` is what
    :func:`not_modified` compared; it goes out so that the region can ask again with it. ``live=False`` does not poll:
    for answers that are dear, such as a search through text.
    """
    fragment = is_fragment(request)
    context = {**context, "layout": FRAGMENT if fragment else PAGE, "live": live, "live_tag": tag or ""}
    response = render(request, template, context)
    response["Vary"] = "HX-Request, Cookie"
    response["Cache-Control"] = "no-store"
    if tag:
        response["HX-PTag"] = tag
    return response


def make_tag(*parts: Any) -> str:
    """A short tag of anything that can be printed; equal parts give an equal tag."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=9).hexdigest()


def not_modified(request: HttpRequest, tag: str) -> HttpResponse | None:
    """304 for a region that already shows what ``tag`` stands for, else nothing."""
    if is_fragment(request) and request.headers.get("HX-PTag") == tag:
        return HttpResponse(status=304, headers={"HX-PTag": tag})
    return None
