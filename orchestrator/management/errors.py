"""One line for what can go wrong between a command and its servers."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, InterfaceError, NotSupportedError, OperationalError, ProgrammingError

from orchestrator.core.errors import SwitchyardError


def explain_error(error: BaseException) -> str | None:
    """What a person should read instead of a traceback; ``None`` for an error that is a defect of ours."""
    if isinstance(error, SwitchyardError):
        return error.message
    if isinstance(error, OperationalError | InterfaceError) and _is_connection_error(error):
        return _unreachable_database(error)
    if isinstance(error, NotSupportedError) and "PostgreSQL" in str(error):
        return f"{_database_address()} is too old: {_first_line(error)} Switchyard needs PostgreSQL 15 or later."
    if isinstance(error, ProgrammingError) and type(error.__cause__).__name__ == "UndefinedTable":
        return "the database has no tables yet, or old ones; run: python manage.py migrate"
    if isinstance(error, DatabaseError) and type(error.__cause__).__name__ == "ReadOnlySqlTransaction":
        return f"{_database_address()} is read-only; DATABASE_URL must name the primary server"
    if _is_redis_error(error):
        return _unreachable_redis(error)
    return None


def _unreachable_database(error: BaseException) -> str:
    if settings.DATABASE_IS_PRIVATE:
        return f"cannot reach the private PostgreSQL: {_reason(error)}; see: python manage.py services status"
    return (
        f"cannot reach PostgreSQL at {_database_address()}: {_reason(error)}; "
        "check DATABASE_URL or unset it to use the private server"
    )


def _unreachable_redis(error: BaseException) -> str:
    if settings.REDIS_IS_PRIVATE:
        return f"cannot reach the private Valkey: {_reason(error)}; see: python manage.py services status"
    return (
        f"cannot reach Redis at {_redis_address()}: {_reason(error)}; "
        "check REDIS_URL or unset it to use the private server"
    )


def _is_connection_error(error: BaseException) -> bool:
    """Whether the server could not be reached or went away, and not a deadlock or a full disk."""
    state = getattr(error.__cause__, "sqlstate", None)
    return state is None or str(state)[:2] in ("08", "28", "3D", "53", "57")


def _is_redis_error(error: BaseException) -> bool:
    # By name: only the transport layer imports redis.
    return any(
        cls.__module__.split(".")[0] == "redis" and cls.__name__ in ("ConnectionError", "TimeoutError")
        for cls in type(error).__mro__
    )


def _database_address() -> str:
    entry = settings.DATABASES["default"]
    return f"{entry['HOST'] or 'the local socket'}:{entry['PORT'] or 5432}"


def _redis_address() -> str:
    parts = urlsplit(settings.REDIS_URL)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"


def _reason(error: BaseException) -> str:
    """The server's or the system's own words, without the address that the sentence already has."""
    text = _first_line(error)
    text = re.sub(r"^connection (failed: connection )?to server at .*? failed: ", "", text)
    text = re.sub(r"^Error \S+ connecting to \S+\.? ?", "", text)
    text = text.removeprefix("FATAL:")
    return text.strip().rstrip(".") or type(error).__name__


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
