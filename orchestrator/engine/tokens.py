"""API tokens: made once, shown once, kept as a hash."""

from __future__ import annotations

import hashlib
import re
import secrets

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from orchestrator.core.actor import ROLES, Actor, require
from orchestrator.core.errors import Conflict, Invalid, NotFound
from orchestrator.engine import audit
from orchestrator.models import ApiToken


def create_token(name: str, role: str, actor: Actor) -> str:
    """Makes a token and answers its text, which is not kept.

    Raises:
        NotAllowed: the actor is no admin.
        Invalid: an unknown role or a name of other than 1 to 100 letters, digits and ``._@-``.
        Conflict: the name is taken, by a revoked token too.
    """
    require(actor, "admin")
    if role not in ROLES:
        raise Invalid(f"there is no role {role!r}; it is one of {', '.join(ROLES)}", field="role")
    if not re.fullmatch(r"[\w.@-]{1,100}", name):
        raise Invalid(f"{name!r} is not a token's name: 1 to 100 letters, digits and ._@-", field="name")
    text = secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            ApiToken.objects.create(name=name, token_hash=hash_token(text), role=role)
            audit.note(f"token {name}", "create_token", actor, after={"role": role})
    except IntegrityError:
        raise Conflict(f"there is a token named {name!r} already; choose another name", field="name") from None
    return text


def revoke_token(name: str, actor: Actor, reason: str) -> None:
    """Makes a token useless, from its next request on.

    Raises:
        NotAllowed, NotFound; Invalid: no reason; Conflict: it is revoked already.
    """
    require(actor, "admin", reason)
    with transaction.atomic():
        changed = ApiToken.objects.filter(name=name, revoked_at=None).update(revoked_at=Now())
        if not changed:
            if ApiToken.objects.filter(name=name).exists():
                raise Conflict(f"token {name!r} is revoked already")
            raise NotFound(f"there is no token named {name!r}")
        audit.note(f"token {name}", "revoke_token", actor, reason, after={"revoked": True})


def hash_token(text: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
