"""Who does something, and what their role allows (the table of roles is in docs/security)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import Invalid, NotAllowed

ROLES = ("viewer", "support", "operator", "admin")


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, token or part of the system, with one of :data:`ROLES`. Stands in every audit record.

    ``groups`` are those whose approvals the actor may give.
    """

    name: str
    role: str
    groups: frozenset[str] = frozenset()

    @property
    def spoken(self) -> str:
        """The name inside a text or payload: ``token:ci`` would be masked there like a secret, ``token ci`` is not."""
        return self.name.replace("token:", "token ", 1) if self.name.startswith("token:") else self.name


ENGINE = Actor("engine", "admin")


def allows(role: str, needed: str) -> bool:
    """Whether ``role`` includes what ``needed`` may do. An unknown role may nothing."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(needed)


def require(actor: Actor, needed: str, reason: str | None = None) -> None:
    """Stops an action that the actor may not take, or that lacks its reason.

    Raises:
        NotAllowed: the role is below ``needed``.
        Invalid: ``reason`` is given and blank.
    """
    if not allows(actor.role, needed):
        raise NotAllowed(f"{actor.name} is signed in as {actor.role or 'nobody'}; this needs the role {needed}")
    if reason is not None and not reason.strip():
        raise Invalid("say why: a reason is kept with every change", field="reason")
