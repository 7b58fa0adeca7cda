"""Who may do what. Roles are Django groups; a superuser is an admin. Views ask here and hold no rules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url

from orchestrator.core.actor import ROLES, Actor, allows

View = Callable[..., HttpResponseBase]


def role_of(user: User | AnonymousUser) -> str:
    """The highest role of a user; empty for one who is signed out, inactive or in none of the groups."""
    if not user.is_authenticated or not user.is_active:
        return ""
    if user.is_superuser:
        return ROLES[-1]
    groups = groups_of(user)
    return next((role for role in reversed(ROLES) if role in groups), "")


def groups_of(user: User | AnonymousUser) -> frozenset[str]:
    """Names of the groups, roles among them. Read once for a request, or with the user: ``dashboard.sign_in``."""
    if not user.is_authenticated:
        return frozenset()
    known: frozenset[str] | None = getattr(user, "_switchyard_groups", None)
    if known is None:
        came: list[str] | None = getattr(user, "group_names", None)
        known = frozenset(user.groups.values_list("name", flat=True) if came is None else came)
        user._switchyard_groups = known  # type: ignore[attr-defined]
    return known


def may(user: User | AnonymousUser, role: str) -> bool:
    """Whether the user has the role or one above it."""
    return allows(role_of(user), role)


def actor_of(request: HttpRequest) -> Actor:
    """Who acts, for ``engine.operate`` and the audit records."""
    return person(request.user)


def person(user: User | AnonymousUser) -> Actor:
    """A signed-in user as an actor, with the groups whose approvals they may give."""
    return Actor(user.get_username(), role_of(user), groups_of(user))


def require_role(role: str = "viewer", told: str = "") -> Callable[[View], View]:
    """Decorate a view: the signed out are sent to sign in, those below ``role`` get the 403 page with ``told``."""
    if role not in ROLES:
        raise ValueError(f"there is no role {role!r}")

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return sign_in(request)
            if not may(request.user, role):
                return refuse(request, told or f"This needs the role {role}.")
            return view(request, *args, **kwargs)

        guarded.required_role = role  # type: ignore[attr-defined]
        return guarded

    return decorate


def sign_in(request: HttpRequest) -> HttpResponse:
    """Send to the sign-in page. A polling region is told to take the whole window there."""
    if "HX-Request" in request.headers:
        where = f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': request.get_full_path()})}"
        return HttpResponse(status=204, headers={"HX-Redirect": where})
    return redirect_to_login(request.get_full_path(), resolve_url(settings.LOGIN_URL))


def refuse(request: HttpRequest, message: str) -> HttpResponse:
    """The 403 page, or its text alone for a polling region. ``message`` says what is missing."""
    context = {"message": message, "role": role_of(request.user)}
    return render(request, "403.html", context, status=403)
