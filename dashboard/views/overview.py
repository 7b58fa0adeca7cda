"""The overview, and the charts on it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.access import require_role
from dashboard.queries.charts import PERIODS
from dashboard.queries.charts import charts as read_charts
from dashboard.queries.overview import overview as read
from dashboard.queries.overview_words import opening
from dashboard.queries.version import version_tag
from dashboard.render import is_fragment, live_page, not_modified


@require_role("viewer")
def overview(request: HttpRequest) -> HttpResponse:
    """How things stand, and what wants somebody. The charts stand below the region that polls."""
    tag = version_tag("overview")
    if (same := not_modified(request, tag, shared=True)) is not None:
        return same
    page = read()
    context = {"page": page, "opening": opening(page), "periods": PERIODS}
    if not is_fragment(request):
        context["charts"] = read_charts(request.GET.get("hours", ""), request.GET.get("workflow", ""))
    return live_page(request, "overview/index.html", context, tag=tag, shared=True)


@require_role("viewer")
def charts(request: HttpRequest) -> HttpResponse:
    """The charts alone; for a region that asks again, what stands in it."""
    context = {"charts": read_charts(request.GET.get("hours", ""), request.GET.get("workflow", "")), "periods": PERIODS}
    if is_fragment(request):
        response = render(request, "overview/charts.html", context)
        response["Cache-Control"] = "no-store"
        return response
    return live_page(request, "overview/charts_page.html", context, live=False)
