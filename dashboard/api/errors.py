"""Errors of the API: always ``{"error": {"code", "message", "field"?}}``, never HTML.

What a use case refuses arrives as one of ``core.errors``; what is wrong with the request itself is an
:class:`ApiError`. Everything else is a defect or an outage and is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import psycopg
from django.db import DatabaseError, DataError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from orchestrator.core import errors

log = logging.getLogger("switchyard.api")

STATUS: dict[type[errors.SwitchyardError], int] = {
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Invalid: 422,
    errors.TooLarge: 413,
    errors.NotAllowed: 403,
}
#: Answers that Django or the framework makes without a word of ours, by status.
PLAIN: dict[int, tuple[str, str]] = {
    400: ("bad_request", "the request cannot be read"),
    401: ("unauthenticated", "send a token: Authorization: Bearer TOKEN"),
    403: ("forbidden", "this is not allowed"),
    404: ("not_found", "there is nothing at this address; see /api/v1/openapi.json"),
    405: ("method_not_allowed", "this address does not take that method; the header Allow names those that it does"),
    413: ("too_large", "the body is too large"),
    500: ("internal", "something went wrong here, not with your request; it has been logged"),
    503: ("unavailable", "the service cannot answer at the moment; try again"),
}


class ApiError(Exception):
    """A request that is refused before any use case sees it."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field

    def response(self) -> HttpResponse:
        """The answer."""
        return error_response(self.status, self.code, self.message, self.field)


def error_response(status: int, code: str, message: str, field: str | None = None) -> HttpResponse:
    """The one shape of an error."""
    error = {"code": code, "message": message}
    if field:
        error["field"] = field
    response = JsonResponse({"error": error}, status=status)
    if status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


def plain_response(status: int) -> HttpResponse:
    """The answer for a status that came without words."""
    code, message = PLAIN.get(status, PLAIN[500] if status >= 500 else PLAIN[400])
    return error_response(status, code, message)


def install(api: NinjaAPI) -> None:
    """Has the API answer every exception in that shape."""
    handlers: dict[type[Exception], Any] = {
        ApiError: lambda request, exc: exc.response(),
        errors.SwitchyardError: _refused,
        ValidationError: lambda request, exc: _invalid(exc.errors),
        HttpError: _framework,
        Http404: lambda request, exc: plain_response(404),
        DatabaseError: _database,
        InterfaceError: _database,
        psycopg.Error: _database,
        Exception: _defect,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)


def _refused(request: HttpRequest, exc: errors.SwitchyardError) -> HttpResponse:
    status = next((code for kind, code in STATUS.items() if isinstance(exc, kind)), 422)
    return error_response(status, exc.code, exc.message, exc.field)


def _framework(request: HttpRequest, exc: HttpError) -> HttpResponse:
    # The framework wraps what the parser of the body raised.
    if isinstance(exc.__cause__, ApiError):
        return exc.__cause__.response()
    if isinstance(exc, AuthenticationError):
        return plain_response(401)
    if exc.__cause__ is not None:
        return error_response(400, "bad_request", "the body cannot be read")
    return plain_response(exc.status_code)


def _invalid(problems: list[dict[str, Any]]) -> HttpResponse:
    """The first of the problems, with the path of the field as it stands in the body."""
    first = problems[0]
    # ("body", the name of our parameter, "labels", "tier"): the caller knows the last two.
    path = _path(first["loc"][2:])
    kind = first["type"]
    where = path or "the body"
    if kind == "extra_forbidden":
        message = f"{where} is not a field of this request"
    elif kind == "missing":
        message = f"{where} is missing"
    elif kind in ("dict_type", "model_type", "model_attributes_type"):
        message = f"{where} must be a JSON object"
    else:
        # A field that takes several types has a problem for each of them.
        same = [problem["msg"] for problem in problems if _path(problem["loc"][2:]) == path]
        message = f"{where}: " + ", or ".join(dict.fromkeys(_said(text) for text in same))
    return error_response(422, "invalid", message, path or None)


def _said(text: Any) -> str:
    said = str(text).removeprefix("Value error, ")
    return said[:1].lower() + said[1:]


def _path(loc: Iterable[str | int]) -> str:
    path = ""
    for part in loc:
        # What the framework adds: the branch of a union (``constrained-str``), or that a key itself is meant.
        if part == "[key]" or str(part).startswith(("constrained-", "literal[")):
            break
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _database(request: HttpRequest, exc: Exception) -> HttpResponse:
    # The engine speaks to the driver directly, the rest through Django, which wraps what the driver raised.
    driver = exc if isinstance(exc, psycopg.Error) else exc.__cause__
    state = str(getattr(driver, "sqlstate", None) or "")
    if isinstance(exc, DataError) and state[:2] == "22":
        log.warning("value refused by the database at %s: %s", request.path, exc)
        return error_response(422, "invalid", "a value is out of the range that can be stored")
    if state == "57014":
        return error_response(503, "too_broad", "that took too long and was stopped; narrow it down")
    if state == "25006":
        return error_response(503, "read_only", "the database is read-only at the moment; nothing was changed")
    if isinstance(driver, psycopg.OperationalError | psycopg.InterfaceError):
        log.warning("database unavailable at %s: %s", request.path, exc)
        return error_response(503, "unavailable", "the database cannot answer at the moment; try again")
    return _defect(request, exc)


def _defect(request: HttpRequest, exc: Exception) -> HttpResponse:
    log.error("%s %s failed", request.method, request.path, exc_info=exc)
    return plain_response(500)
