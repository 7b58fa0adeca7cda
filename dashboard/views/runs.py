"""The list of runs with the views that the team keeps of it, as a file too, and those that are or will be late."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from dashboard import export as files
from dashboard import saved_views
from dashboard.access import actor_of, may, require_role
from dashboard.queries import overdue as late
from dashboard.queries import run_filters
from dashboard.queries.bulk import link_to_all
from dashboard.queries.facets import choices, facets
from dashboard.queries.runs import listing, workflow_names
from dashboard.queries.version import version_tag
from dashboard.render import is_fragment, live_page, not_modified
from dashboard.words import RUN
from orchestrator.core.errors import Invalid, SwitchyardError
from orchestrator.core.states import StepState
from orchestrator.engine.explain_words import upper_first

#: Filters behind "More filters", opened when one of them is set.
_MORE = ("cause", "version", "label", "step", "step_state", "waiting_longer_than", "since", "until", "parent")


@require_role("viewer")
def runs(request: HttpRequest) -> HttpResponse:
    """Runs by any filter, newest first. The address holds all of it."""
    may_act = may(request.user, "operator")
    tag = version_tag(request.get_full_path(), may_act)
    if (same := not_modified(request, tag, shared=True)) is not None:
        return same
    found = listing(request.GET)
    context = {
        "found": found,
        "states": RUN,
        "step_states": list(StepState),
        "given": {name: request.GET.get(name, "") for name in run_filters.NAMES},
        "chips": [(name, value) for name in run_filters.NAMES for value in request.GET.getlist(name) if value],
        "may_act": may_act,
        "all_query": link_to_all(found.filters),
        "more_open": any(request.GET.get(name) for name in _MORE),
        "facets": [] if found.problem or found.filters.q else facets(found.filters),
    }
    if not is_fragment(request):
        here = saved_views.filters_of(request.GET)
        kept = saved_views.all_views()
        filters = run_filters.RunFilters() if found.problem else found.filters
        context["choices"] = choices(filters, workflow_names())
        context |= {"saved": kept, "here": here, "is_saved": any(view.query == here for view in kept)}
        context["may_save"] = may(request.user, "support")
    return live_page(request, "runs/index.html", context, tag=tag, live=not found.filters.q, shared=True)


@require_safe
@require_role("viewer")
def export(request: HttpRequest) -> HttpResponseBase:
    """The runs that the filters of the address leave, as CSV; filters that cannot be read lead to the list."""
    try:
        filters = run_filters.parse(dict(request.GET.lists()))
        return files.answer("runs", files.RUNS, files.run_rows(run_filters.matching(filters)))
    except Invalid as error:
        messages.error(request, f"No file was made: {error.message}.")
        return redirect(f"{reverse('runs')}?{request.GET.urlencode()}")


@require_POST
@require_role("support")
def save_view(request: HttpRequest) -> HttpResponse:
    """Keeps the filters that the form names under a name, for everybody."""
    query = request.POST.get("query", "")
    try:
        made = saved_views.save(request.POST.get("name", ""), query, actor_of(request))
        query = made.query
        messages.success(request, f"The view {made.name} is kept.")
    except SwitchyardError as error:
        messages.error(request, f"{upper_first(error.message)}.")
    return redirect(f"{reverse('runs')}?{query}" if len(query) <= 4000 else "runs")


@require_POST
@require_role("support")
def delete_view(request: HttpRequest, view_id: int) -> HttpResponse:
    """Deletes a view."""
    try:
        messages.success(request, f"The view {saved_views.delete(view_id, actor_of(request))} is deleted.")
    except SwitchyardError as error:
        messages.error(request, f"{upper_first(error.message)}.")
    return redirect("runs")


@require_role("viewer")
def overdue(request: HttpRequest) -> HttpResponse:
    """Overdue, at risk, and missed in the last 24 hours. ``?more=1`` for long lists."""
    more = request.GET.get("more") == "1"
    tag = version_tag("overdue", more)
    if (same := not_modified(request, tag, shared=True)) is not None:
        return same
    return live_page(request, "runs/overdue.html", {"page": late.page(more)}, tag=tag, shared=True)
