"""Keeps everything under ``/api/`` JSON, whoever answers: Django's own pages for 400, 404, 405 and 500 too."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from dashboard.api.body import MAX_BYTES
from dashboard.api.errors import error_response, plain_response

Handler = Callable[[HttpRequest], HttpResponse]
#: Bytes of a refused body that are read and thrown away, so that the client gets to see the answer.
DRAIN_BYTES = 64 * 1024 * 1024


class JsonErrors:
    """Middleware, outermost: refuses bodies by size unread, and turns error pages into error bodies."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answers the request."""
        if not request.path_info.startswith("/api/"):
            return self.get_response(request)
        if request.method == "HEAD":
            return self._head(request)
        response = _refuse(request) or self.get_response(request)
        if response.status_code < 400 or response.get("Content-Type", "").startswith("application/json"):
            return response
        answer = plain_response(response.status_code)
        if "Allow" in response:
            answer["Allow"] = response["Allow"]
        return answer

    def _head(self, request: HttpRequest) -> HttpResponse:
        """What GET would answer, without the body but with its length."""
        request.method = "GET"
        response = self(request)
        length = len(response.content)
        response.content = b""
        response["Content-Length"] = str(length)
        return response


def _refuse(request: HttpRequest) -> HttpResponse | None:
    if "\x00" in request.path_info:
        return error_response(404, "not_found", "the address holds a NUL character")
    if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        return error_response(411, "length_required", "send the body with a Content-Length, not chunked")
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return error_response(400, "bad_request", "Content-Length is not a number")
    if length <= MAX_BYTES:
        return None
    _drain(request, length)
    return error_response(413, "too_large", f"the body has {length} bytes; {MAX_BYTES} (1 MB) are the most taken")


def _drain(request: HttpRequest, length: int) -> None:
    """Closing with unread bytes resets the connection, and the client would see that instead of the answer."""
    left = min(length, DRAIN_BYTES)
    try:
        while left > 0 and (chunk := request.read(min(left, 65536))):
            left -= len(chunk)
    except OSError:
        return
