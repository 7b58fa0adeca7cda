"""The list of runs, and those that are or will be late."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from dashboard.access import may, require_role
from dashboard.queries import overdue as late
from dashboard.queries import run_filters
from dashboard.queries.bulk import link_to_all
from dashboard.queries.runs import listing, workflow_names
from dashboard.queries.version import version_tag
from dashboard.render import live_page, not_modified
from dashboard.words import CAUSE, RUN
from orchestrator.core.states import StepState

#: Filters behind "More filters", opened when one of them is set.
_MORE = ("cause", "version", "label", "step", "step_state", "waiting_longer_than", "since", "until", "parent")


@require_role("viewer")
def runs(request: HttpRequest) -> HttpResponse:
    """Runs by any filter, newest first. The address holds all of it."""
    may_act = may(request.user, "operator")
    tag = version_tag(request.get_full_path(), may_act)
    if (same := not_modified(request, tag)) is not None:
        return same
    found = listing(request.GET)
    context = {
        "found": found,
        "states": RUN,
        "causes": CAUSE,
        "step_states": list(StepState),
        "workflows": workflow_names(),
        "given": {name: request.GET.get(name, "") for name in run_filters.NAMES},
        "chips": [(name, value) for name in run_filters.NAMES for value in request.GET.getlist(name) if value],
        "may_act": may_act,
        "all_query": link_to_all(found.filters),
        "more_open": any(request.GET.get(name) for name in _MORE),
    }
    return live_page(request, "runs/index.html", context, tag=tag, live=not found.filters.q)


@require_role("viewer")
def overdue(request: HttpRequest) -> HttpResponse:
    """Overdue, at risk, and missed in the last 24 hours."""
    tag = version_tag("overdue")
    if (same := not_modified(request, tag)) is not None:
        return same
    return live_page(request, "runs/overdue.html", {"page": late.page()}, tag=tag)
