"""Errors that a person or a program can cause. Each says what, where and what to do."""

from __future__ import annotations


class SwitchyardError(Exception):
    """Base of every error a user can cause. ``code`` is machine-readable, ``field`` names the input at fault."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class NotFound(SwitchyardError):
    """There is no such workflow, version, run, step or dead letter (HTTP 404)."""

    code = "not_found"


class Conflict(SwitchyardError):
    """The present state does not allow it (HTTP 409). Nothing was changed."""

    code = "conflict"


class Invalid(SwitchyardError):
    """The input cannot be accepted as it is (HTTP 422). Nothing was changed."""

    code = "invalid"


class TooLarge(SwitchyardError):
    """The input is over a documented size (HTTP 413). Nothing was changed."""

    code = "too_large"


class NotAllowed(SwitchyardError):
    """The actor's role does not allow it (HTTP 403). Nothing was changed."""

    code = "forbidden"
