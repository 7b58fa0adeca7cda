"""Who calls: a bearer token, or a signed-in user with the CSRF token on everything that changes something."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer
from ninja.utils import check_csrf

from dashboard.access import person
from dashboard.api.errors import ApiError
from orchestrator.core.actor import Actor, require
from orchestrator.engine.tokens import hash_token
from orchestrator.models import ApiToken

log = logging.getLogger("switchyard.api")
#: A token's ``last_used_at`` is written at most this often.
LAST_USED_EVERY = timedelta(minutes=1)


class Caller(HttpBearer):
    """Authentication of one call: the caller as an ``Actor`` in ``request.auth``, refused below ``role``."""

    def __init__(self, role: str) -> None:
        self.role = role
        super().__init__()

    def __call__(self, request: HttpRequest) -> Actor | None:
        """The caller; ``None`` answers 401.

        Raises:
            NotAllowed: the role is below what the call needs.
            ApiError: 403, a session without its CSRF token.
        """
        actor = super().__call__(request) if request.headers.get("Authorization") else _signed_in(request)
        if actor is None:
            return None
        require(actor, self.role)
        return actor

    def authenticate(self, request: HttpRequest, token: str) -> Actor | None:
        """The actor that a token stands for; ``None`` for one unknown or revoked."""
        found = ApiToken.objects.filter(token_hash=hash_token(token.strip()), revoked_at=None).first()
        if found is None:
            return None
        _note_use(found)
        return Actor(f"token:{found.name}", found.role)


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at and now - token.last_used_at < LAST_USED_EVERY:
        return
    try:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    except DatabaseError as error:  # a read-only database can still be read
        log.warning("last use of token %s not noted: %s", token.name, error)


def _signed_in(request: HttpRequest) -> Actor | None:
    user = request.user
    if not user.is_authenticated:
        return None
    # Views of the API are exempt from Django's own check, because a token needs none.
    if check_csrf(request):
        raise ApiError(403, "csrf", "a signed-in session must send its CSRF token in the header X-CSRFToken")
    return person(user)


VIEWER, SUPPORT, OPERATOR, ADMIN = (Caller(role) for role in ("viewer", "support", "operator", "admin"))


def actor_of(request: HttpRequest) -> Actor:
    """The caller that authentication has found."""
    actor = getattr(request, "auth", None)
    assert isinstance(actor, Actor)
    return actor
