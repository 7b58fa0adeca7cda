"""The page of one run."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_safe

from dashboard import export as files
from dashboard.access import actor_of, require_role
from dashboard.queries import artifacts, run_history
from dashboard.queries.run import run_page
from dashboard.queries.run_actions import actions
from dashboard.queries.run_find import find_run, find_with_signs, run_tag
from dashboard.queries.run_panel import panel
from dashboard.queries.run_steps import SHARD_FILTERS
from dashboard.render import live_page, not_modified

SHOW = ("all", "open", "failed")


@require_safe
@require_role("viewer")
def run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """One run. ``?show=`` narrows the table, ``?step=&shard=`` opens a step, ``?shards=&state=&after=`` its shards."""
    found = find_with_signs(run_id)
    if found is None:
        raise Http404(f"There is no run {run_id}. It may have been deleted after its retention.")
    actor = actor_of(request)
    tag = run_tag(found, request.get_full_path(), actor.role, sorted(actor.groups))
    if (same := not_modified(request, tag)) is not None:
        return same
    get = {name: _text(request.GET.get(name, "")) for name in ("show", "step", "shard", "shards", "state")}
    page = run_page(
        found,
        show=get["show"] if get["show"] in SHOW else "",
        panel=get["step"],
        shards=get["shards"],
        state=get["state"] if get["state"] in SHARD_FILTERS else "",
        after=_number(request.GET.get("after", "")),
    )
    context = {
        "page": page,
        "run": found.run,
        "panel": panel(page.facts, page.views, get["step"], get["shard"], actor, page.tries) if get["step"] else None,
        "panel_missing": get["step"],
        "actions": actions(
            found.run,
            actor.role,
            may_approve=page.may_approve(actor),
            alike=any(error.similar for error in page.errors),
        ),
        "artifacts": artifacts.of_run(found.run.id),
        "back": request.get_full_path(),
    }
    return live_page(request, "run/index.html", context, tag=tag)


@require_safe
@require_role("viewer")
def history(request: HttpRequest, run_id: uuid.UUID) -> HttpResponseBase:
    """The whole history of one run, as CSV."""
    found = find_run(run_id)
    if found is None:
        raise Http404(f"There is no run {run_id}. It may have been deleted after its retention.")
    return files.answer(f"run-{run_id}", run_history.HEADER, run_history.rows(found))


def _text(given: str) -> str:
    """A parameter's text; what no row can hold matches nothing."""
    return given[:500].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _number(given: str) -> int:
    """An ordinal from the address; anything else begins at the first."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else -1
