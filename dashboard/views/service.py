"""What machines ask without a sign-in: is it up, is it ready, and the metrics."""

from __future__ import annotations

import hmac
import logging
import time

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from orchestrator import metrics, readiness

log = logging.getLogger("switchyard.metrics")
METRICS_SECONDS = 1.9


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """The process is up. Asks nobody."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when every part answers, else 503; either way says which."""
    parts = readiness.check()
    ready = all(part.ok for part in parts)
    body = {"status": "ok" if ready else "unavailable", "parts": {part.name: part.detail for part in parts}}
    return JsonResponse(body, status=200 if ready else 503)


def _render() -> bytes:
    try:
        return metrics.render()
    finally:
        connection.close()


_METRICS = readiness.Bounded(_render)


@require_safe
@never_cache
def prometheus(request: HttpRequest) -> HttpResponse:
    """Prometheus' text; 503 when the database does not answer in time, 401 without the token where one is set."""
    if settings.METRICS_TOKEN and not _has_token(request):
        response = HttpResponse("send Authorization: Bearer and METRICS_TOKEN\n", "text/plain", status=401)
        response["WWW-Authenticate"] = "Bearer"
        return response
    try:
        page = _METRICS.ask(time.monotonic() + METRICS_SECONDS)
    except (DatabaseError, InterfaceError, TimeoutError) as error:
        log.warning("no metrics: %s", error)
        return HttpResponse("the database does not answer\n", "text/plain", status=503)
    return HttpResponse(page, metrics.CONTENT_TYPE)


def _has_token(request: HttpRequest) -> bool:
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.METRICS_TOKEN.encode()
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("utf-8", "replace"), wanted)
