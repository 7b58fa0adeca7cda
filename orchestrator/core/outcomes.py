"""How a handler ends an attempt otherwise than by returning: exceptions that authors raise, re-exported by the SDK."""

from __future__ import annotations


class Outcome(Exception):
    """Base of the four. ``reason`` is the text shown on the page; it is also the exception's message."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Fail(Outcome):
    """The step cannot succeed, however often it is tried: failed for good, no retry is spent."""


class Retry(Outcome):
    """Try again later; this attempt counts.

    Args:
        after: seconds, or text such as ``"30s"``; ``None`` leaves the wait to the step's own backoff. It is kept as
            given: the engine reads it, so that a bad value is that attempt's error and not a crash here.
        reason: text for the page.
    """

    def __init__(self, after: float | str | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.after = after


class Skip(Outcome):
    """There is nothing to do: the step is ``skipped`` and satisfies its successors."""


class Cancelled(Outcome):
    """Work stops because the run was cancelled, forced or ran past its deadline. ``ctx.check_cancelled`` raises it."""
