"""How long a page may keep the database busy: a statement that takes longer is stopped, and the page says so.

So does the page that is answered while the database is not there, or takes no changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import OperationalError, connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

Handler = Callable[[HttpRequest], HttpResponse]
log = logging.getLogger("switchyard.web")
#: Seconds that one statement of a page may take. Actions (POST) have no such limit: they finish what they began.
SECONDS = 10.0
#: Asked while the database is in trouble; they bound themselves.
_UNBOUND = ("/healthz", "/readyz", "/metrics")
#: Seconds that each open connection allows already.
_limits: WeakKeyDictionary[Any, float] = WeakKeyDictionary()


class Patience:
    """Middleware: sets the limit where it changes, once a connection as a rule, and words what became of it."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answers the request."""
        if request.path_info in _UNBOUND:
            return self.get_response(request)
        seconds = SECONDS if request.method in ("GET", "HEAD") else 0.0
        try:
            _limit(seconds)
        except OperationalError:
            log.warning("no limit set: the database does not answer")  # the page will find out, and say it
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The page that says what took too long, or that the database is away; other errors are somebody else's."""
        # The engine speaks to the driver directly, the rest through Django, which wraps what the driver raised.
        driver = error if isinstance(error, psycopg.Error) else error.__cause__
        state = getattr(driver, "sqlstate", None)
        if state == "57014":
            log.warning("%s took longer than %g s and was stopped", request.path, SECONDS)
            response = render(request, "slow.html", {"seconds": SECONDS, "back": request.path}, status=503)
            response["Retry-After"] = "30"
            return response
        if state == "25006" or isinstance(driver, psycopg.OperationalError | psycopg.InterfaceError):
            log.warning("database unavailable at %s: %s", request.path, error)
            context = {"read_only": state == "25006", "changing": request.method == "POST"}
            response = render(request, "unavailable.html", context, status=503)
            response["Retry-After"] = "10"
            return response
        return None


def _limit(seconds: float) -> None:
    connection.ensure_connection()
    raw = connection.connection
    if _limits.get(raw) == seconds:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [str(int(seconds * 1000))])
    _limits[raw] = seconds
