"""Actions of the admin that change something: a page that says what will happen and asks why, then one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from dashboard.access import role_of
from orchestrator.core.actor import Actor
from orchestrator.core.errors import SwitchyardError

#: Rows that one action takes; more is work for the API and the command line.
MAX_ITEMS = 200
#: Rows whose consequences are spelled out.
MAX_PREVIEWS = 20


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(max_length=2000, widget=forms.Textarea(attrs={"rows": 3, "cols": 60}))


class CancelForm(ReasonForm):
    """Why, and whether running handlers are killed."""

    force = forms.BooleanField(required=False, help_text="Kill running handlers at once.")


def ask_why(
    model_admin: Any,
    request: HttpRequest,
    queryset: QuerySet[Any],
    *,
    verb: str,
    done: str,
    perform: Callable[[Any, Actor, dict[str, Any]], None],
    preview: Callable[[Any], list[str]] | None = None,
    form_class: type[ReasonForm] = ReasonForm,
) -> HttpResponse | None:
    """The page with the reason form, or, once that is filled in, the action on each of the chosen rows.

    The page carries the ids of the rows, so that what is done is what was shown. ``perform`` takes a row, the actor
    and the form's values; ``preview`` answers lines that say what would happen.
    """
    rows = list(queryset[: MAX_ITEMS + 1])
    if len(rows) > MAX_ITEMS:
        model_admin.message_user(request, f"Choose {MAX_ITEMS} at most; nothing was changed.", messages.ERROR)
        return None
    confirmed = "confirmed" in request.POST
    form = form_class(request.POST if confirmed else None)
    if confirmed and form.is_valid():
        _perform(model_admin, request, rows, done, perform, form.cleaned_data)
        return None
    context = {
        **admin.site.each_context(request),
        "title": f"{verb}: {len(rows)} chosen",
        "opts": model_admin.model._meta,
        "verb": verb,
        "form": form,
        "items": [(row, _preview(preview, row) if n < MAX_PREVIEWS else []) for n, row in enumerate(rows)],
        "action": request.POST.get("action", ""),
        "checkbox": ACTION_CHECKBOX_NAME,
    }
    return TemplateResponse(request, "admin/reason.html", context)


def _preview(preview: Callable[[Any], list[str]] | None, row: Any) -> list[str]:
    try:
        return preview(row) if preview else []
    except SwitchyardError as refused:
        return [refused.message]


def _perform(
    model_admin: Any,
    request: HttpRequest,
    rows: list[Any],
    done: str,
    perform: Callable[[Any, Actor, dict[str, Any]], None],
    values: dict[str, Any],
) -> None:
    actor = Actor(request.user.get_username(), role_of(request.user))
    good = 0
    for row in rows:
        try:
            perform(row, actor, values)
            good += 1
        except SwitchyardError as refused:
            model_admin.message_user(request, f"{row}: {refused.message}", messages.WARNING)
    if good:
        model_admin.message_user(request, f"{good} {done}.", messages.SUCCESS)
