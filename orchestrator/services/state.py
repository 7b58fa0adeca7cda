"""What is remembered of the private servers: ``services.json`` in the project's ``.local``, mode 0600."""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.core.errors import SwitchyardError

FILE = "services.json"


class ServicesError(SwitchyardError):
    """A private server cannot be started, stopped or reached; the message says why and what to do."""

    code = "services"


def load(local: Path) -> dict[str, Any]:
    """The remembered ports, passwords and addresses; empty when there are none.

    Raises:
        ServicesError: the file is there and cannot be read.
    """
    path = local / FILE
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except PermissionError:
        raise ServicesError(
            f"{path} belongs to another user; run as that user, or set DATABASE_URL, REDIS_URL and SECRET_KEY"
        ) from None
    except ValueError as error:
        raise ServicesError(f"{path} cannot be read ({error}); delete it, ports and passwords are made anew") from None
    return kept if isinstance(kept, dict) else {}


def save(local: Path, kept: dict[str, Any]) -> None:
    """Replaces the file in one move, so that no reader sees half of it. Call it under :func:`locked`."""
    write_private(local / FILE, json.dumps(kept, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Writes a file of mode 0600 in one move."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
        handle.write(text)
    Path(handle.name).replace(path)  # NamedTemporaryFile makes files of mode 0600


@contextlib.contextmanager
def locked(local: Path) -> Iterator[None]:
    """Holds ``.local`` for one process at a time, so that two starts at once make one server.

    Raises:
        ServicesError: ``.local`` cannot be made or belongs to another user.
    """
    try:
        local.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = (local / "services.lock").open("a")
    except OSError as error:
        raise ServicesError(
            f"cannot write to {local}: {error.strerror}; run as the user that owns the project, "
            "or set DATABASE_URL, REDIS_URL and SECRET_KEY"
        ) from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def secret_key(local: Path) -> str:
    """A secret key that stays the same over restarts and for all processes; made at first use.

    Where ``.local`` cannot be written the key lasts as long as the process; set ``SECRET_KEY`` there.
    """
    with contextlib.suppress(ServicesError):
        if key := load(local).get("secret_key"):
            return str(key)
        with locked(local):
            kept = load(local)
            kept.setdefault("secret_key", secrets.token_urlsafe(48))
            save(local, kept)
            return str(kept["secret_key"])
    return secrets.token_urlsafe(48)
