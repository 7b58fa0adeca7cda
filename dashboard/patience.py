"""How long a page may keep the database busy: a statement that takes longer is stopped, and the page says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

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
        """The page that says what took too long; other errors are somebody else's."""
        if not isinstance(error, OperationalError) or getattr(error.__cause__, "sqlstate", None) != "57014":
            return None
        log.warning("%s took longer than %g s and was stopped", request.path, SECONDS)
        context = {"seconds": SECONDS, "back": request.path}
        response = render(request, "slow.html", context, status=503)
        response["Retry-After"] = "30"
        return response


def _limit(seconds: float) -> None:
    connection.ensure_connection()
    raw = connection.connection
    if _limits.get(raw) == seconds:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [str(int(seconds * 1000))])
    _limits[raw] = seconds
