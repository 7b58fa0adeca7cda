"""Links for customers: signed, with an end, for one run. Whoever holds one sees the run's reply and nothing else."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from django.core import signing

_SALT = "switchyard.shared-link"


class BadLink(Exception):
    """The text is no link of ours: cut short, changed, or signed with a key that is no longer in use."""


def make_token(run_id: uuid.UUID, until: datetime) -> str:
    """The part of the address that names the run and the end of the link."""
    return signing.dumps([run_id.hex, int(until.timestamp())], salt=_SALT)


def read_token(token: str) -> tuple[uuid.UUID, datetime]:
    """The run, and until when the link is good; that it may have passed is the caller's to see.

    Raises:
        BadLink: for anything that :func:`make_token` did not make.
    """
    try:
        run, until = signing.loads(token, salt=_SALT)
        return uuid.UUID(run), datetime.fromtimestamp(until, UTC)
    except (signing.BadSignature, ValueError, TypeError, OverflowError):
        raise BadLink(token[:40]) from None
