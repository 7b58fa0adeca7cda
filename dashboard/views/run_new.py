"""Starting a run from the page: a new one, or an old one's input once more."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from dashboard.access import actor_of, require_role
from dashboard.queries import run_new as read
from dashboard.render import PAGE
from dashboard.views.run_actions import STATUS
from orchestrator.core.errors import Conflict, SwitchyardError
from orchestrator.core.text import clean
from orchestrator.engine import operate
from orchestrator.engine.explain_words import sentences, upper_first


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("operator")
def new(request: HttpRequest) -> HttpResponse:
    """The form (``?from=`` an old run, ``?workflow=``), and what it sends. One form starts one run, however often."""
    if request.method != "POST":
        return _page(request, read.blank(request.GET))
    form = read.sent(request.POST)
    arguments = read.arguments(form)
    status = 422
    if not form.errors:
        reason, again = clean(form.values["reason"], 2000), form.old.pk if form.old else None
        try:
            run_id, made = operate.start_run(actor_of(request), reason, again=again, **arguments)
        except SwitchyardError as problem:
            status = STATUS.get(type(problem), 409 if isinstance(problem, Conflict) else 422)
            _tell(form, problem)
        else:
            messages.success(request, "Started." if made else "This has started a run already; here it is.")
            return redirect("run", run_id)
    return _page(request, form, status)


def _tell(form: read.RunForm, problem: SwitchyardError) -> None:
    """At the field that is at fault, else above the form."""
    at = problem.field or ""
    message = problem.message
    if at == "idempotency_key" and not form.values["idempotency_key"].strip():
        # The form's own key: it was sent before, and changed since.
        message, at = "this form has started a run already, with other content; send it again to start another one", ""
        form.once = read.blank({}).once
    form.errors[at.partition("[")[0] if at.partition("[")[0] in form.values else ""] = message


def _page(request: HttpRequest, form: read.RunForm, status: int = 200) -> HttpResponse:
    errors = {name: sentences(upper_first(text)) for name, text in form.errors.items()}
    context: dict[str, Any] = {
        "form": form,
        "values": form.values,
        "errors": errors,
        "above": errors.get("", ""),
        "workflows": read.workflows(),
        "versions": read.versions(form.values["workflow"]),
        "layout": PAGE,
    }
    return render(request, "runs/new.html", context, status=status)
