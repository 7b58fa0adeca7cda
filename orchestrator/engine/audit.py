"""Audit records of what a person did that changes no run. Those of runs are written with the change itself."""

from __future__ import annotations

from typing import Any

from orchestrator.core.actor import Actor
from orchestrator.core.text import clean
from orchestrator.models import AuditRecord


def note(subject: str, action: str, actor: Actor, reason: str = "", *, before: Any = None, after: Any = None) -> None:
    """Writes one in the caller's transaction. ``subject`` says what it concerns, such as ``topic gpu``."""
    AuditRecord.objects.create(
        subject=clean(subject),
        action=action,
        actor=actor.name,
        role=actor.role,
        reason=clean(reason),
        before=before,
        after=after,
    )
