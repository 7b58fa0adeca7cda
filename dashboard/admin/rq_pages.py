"""django-rq's own pages at ``/admin/rq/``, for admins: what lies in Redis, for when the pages of ours are not enough.

They change Redis and nothing else, and the record decides: a ticket requeued there is a doubled ticket, one deleted is
issued again, so emptying and requeueing do no harm. Stopping would kill a worker's process under a handler, which
the record takes for a lost worker; it is refused here. Whatever is changed leaves an audit record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import URLPattern
from django_rq.urls import get_admin_urlpatterns, get_api_urlpatterns

from dashboard.access import require_role, role_of
from orchestrator.core.actor import Actor
from orchestrator.engine import audit

View = Callable[..., HttpResponseBase]
#: What the queue's client raises for what is not there; by name, because only the transport imports it.
MISSING = ("NoSuchJobError", "Http404", "IndexError", "ValueError", "ImproperlyConfigured")


def _guard(view: View) -> View:
    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        if request.method == "POST":
            if view.__name__ == "stop_job" or request.POST.get("action") == "stop":
                messages.error(request, "Stopping is not offered here, because it bypasses the record: cancel the run.")
                return redirect("django_rq:home")
            actor = Actor(request.user.get_username(), role_of(request.user))
            audit.note(f"rq {request.path}", "rq", actor, after={"action": request.POST.get("action") or view.__name__})
        try:
            return view(request, *args, **kwargs)
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            if any(name in kinds for name in MISSING):
                return HttpResponse("There is no such queue or job any more.\n", "text/plain", status=404)
            if type(error).__module__.startswith("redis.") or isinstance(error, OSError):
                return HttpResponse("Redis does not answer; the record is not affected.\n", "text/plain", status=503)
            raise

    return require_role("admin")(guarded)


def _guarded(pattern: URLPattern) -> URLPattern:
    pattern.callback = _guard(pattern.callback)
    return pattern


app_name = "django_rq"
urlpatterns = [_guarded(pattern) for pattern in [*get_api_urlpatterns(), *get_admin_urlpatterns()]]
