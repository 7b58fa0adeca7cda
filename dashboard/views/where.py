"""Where is it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.access import require_role


@require_role("viewer")
def where(request: HttpRequest) -> HttpResponse:
    """How things stand."""
    return render(request, "where/index.html", {"layout": "base.html"})
