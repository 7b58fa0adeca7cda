"""A link for the customer: made by support, and the page that it opens, which says the reply and nothing else."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.access import actor_of, require_role
from dashboard.render import PAGE
from dashboard.shared_link import BadLink, make_token, read_token
from dashboard.views.run_actions import STATUS, run_or_404
from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import SwitchyardError
from orchestrator.core.text import clean
from orchestrator.engine import operate
from orchestrator.engine.clock import record_now
from orchestrator.engine.explain import reply
from orchestrator.engine.explain_words import sentences, upper_first
from orchestrator.models import Run

CHOICES = (("1d", "1 day"), ("7d", "7 days"), ("30d", "30 days"))


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("support")
def make(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Ask how long and why, then show the link. Each one is recorded."""
    run, length = run_or_404(run_id), request.POST.get("for", "7d")
    reason, status = clean(request.POST.get("reason", ""), 2000), 200
    context: dict[str, Any] = {"run": run, "choices": CHOICES, "length": length, "reason": reason, "layout": PAGE}
    if request.method == "POST":
        try:
            until = operate.share_run(run_id, parse_duration(length), actor_of(request), reason)
        except SwitchyardError as problem:
            context["problem"], status = sentences(upper_first(problem.message)), STATUS.get(type(problem), 422)
        except BadDuration as problem:
            context["problem"], status = sentences(upper_first(str(problem))), 422
        else:
            path = reverse("shared", args=[make_token(run_id, until)])
            context |= {"link": request.build_absolute_uri(path), "until": until}
    now = record_now()
    return render(request, "share/make.html", {**context, "reply": reply(run, now)}, status=status)


@require_safe
def shown(request: HttpRequest, token: str) -> HttpResponse:
    """What the customer sees. Without a sign-in: the signature in the address is the right to see it."""
    now, status, said = record_now(), 200, ""
    try:
        run_id, until = read_token(token)
    except BadLink:
        title, status = "This link does not work", 404
        said = "It may have been cut short on its way to you. Open it once more from the message that it came with."
    else:
        run = Run.objects.filter(pk=run_id).defer("input", "output", "error").first() if until > now else None
        if until <= now:
            title, status, said = "This link has run out", 410, "Ask for a new one where you got it."
        elif run is None:
            title, status, said = (
                "This is no longer kept",
                404,
                "It ended a good while ago. Ask where you got the link.",
            )
        else:
            title, said = "Where it stands", reply(run, now)
    context = {"title": title, "said": said, "now": now, "good": status == 200}
    response = render(request, "share/shown.html", context, status=status)
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex, nofollow"
    return response
