"""The overview."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.access import require_role


@require_role("viewer")
def overview(request: HttpRequest) -> HttpResponse:
    """How things stand."""
    return render(request, "overview/index.html", {"layout": "base.html"})
