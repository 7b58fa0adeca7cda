"""Private PostgreSQL and Valkey, so that nothing need be installed or configured to try Switchyard or to test it.

Each is used only where its variable (``DATABASE_URL``, ``REDIS_URL``) is unset. They are started when first needed,
keep their data in the project's ``.local``, and run until :func:`stop`. No Django in here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.services.postgres import Postgres
from orchestrator.services.state import ServicesError, load, locked, save
from orchestrator.services.valkey import Valkey

__all__ = ["LOCAL", "OF_UP", "PROJECT", "ServicesError", "Urls", "ensure", "private_names", "reset", "status", "stop"]

PROJECT = Path(__file__).resolve().parent.parent.parent
#: What this machine keeps of the project: data of the private servers, addresses, sign-ins, artifacts.
LOCAL = Path(os.environ.get("LOCAL_DIR") or PROJECT / ".local").absolute()
#: File in ``.local`` that lists the servers which ``manage.py up`` is to stop when it ends.
OF_UP = "up.servers"
#: Name in ``services.json`` and on the command line -> (class, environment variable, key of the address).
_SERVERS: dict[str, tuple[type[Postgres] | type[Valkey], str, str]] = {
    "postgres": (Postgres, "DATABASE_URL", "database"),
    "valkey": (Valkey, "REDIS_URL", "redis"),
}


@dataclass(frozen=True)
class Urls:
    """Addresses to use, and the names of the private servers that this call started."""

    database: str
    redis: str
    started: tuple[str, ...] = ()


def private_names(local: Path | None = None) -> list[str]:
    """The servers to run privately: those that the environment names none of.

    With ``local`` also those that it names by the address of our own, as after ``services env``.
    """
    kept = load(local) if local else {}
    return [
        name
        for name, (_, variable, _) in _SERVERS.items()
        if not (url := os.environ.get(variable, "").strip()) or _is_own(url, kept.get(name, {}))
    ]


def _is_own(url: str, part: dict[str, Any]) -> bool:
    return bool(part.get("password")) and f":{part['password']}@" in url


def ensure(local: Path = LOCAL, names: list[str] | None = None) -> Urls:
    """Starts what is needed and does not run; answers the addresses to use. Safe to call at any time, by many at once.

    Args:
        names: which of ``postgres``, ``valkey``; by default those whose variable is unset.

    Raises:
        ServicesError: a server does not come up.
    """
    names = private_names() if names is None else names
    urls = {key: os.environ.get(variable, "") for _, variable, key in _SERVERS.values()}
    started = []
    if names:
        with locked(local):
            kept = load(local)
            for name in names:
                cls, _, key = _SERVERS[name]
                before = dict(kept.get(name, {}))
                server = cls(local, kept.setdefault(name, {}))
                if server.start():
                    started.append(server.name)
                urls[key] = server.url
                if before != kept[name] or kept.get(key) != server.url:
                    kept[key] = server.url
                    save(local, kept)
    return Urls(urls["database"], urls["redis"], tuple(started))


def stop(local: Path = LOCAL, names: list[str] | None = None) -> list[str]:
    """Stops private servers, all by default; answers the names of those that ran."""
    stopped = []
    with locked(local):
        kept = load(local)
        for name in _SERVERS if names is None else names:
            server = _SERVERS[name][0](local, kept.get(name, {}))
            if server.stop():
                stopped.append(server.name)
    return stopped


def reset(local: Path = LOCAL) -> list[str]:
    """Stops the private servers and deletes their data, artifacts and sign-ins; the names of those that ran.

    Raises:
        ServicesError: ``manage.py up`` is running on them.
    """
    with locked(local), (local / "up.lock").open("a") as up:
        try:
            fcntl.flock(up, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServicesError("Switchyard is running here; stop it first (Ctrl-C where make run runs)") from None
        kept = load(local)
        servers = [cls(local, kept.get(name, {})) for name, (cls, _, _) in _SERVERS.items()]
        stopped = [server.name for server in servers if server.stop()]
        for folder in [*(server.data for server in servers), local / "artifacts", local / "mail"]:
            shutil.rmtree(folder, ignore_errors=True)
        (local / "credentials.json").unlink(missing_ok=True)
        save(local, {name: value for name, value in kept.items() if name == "secret_key"})
    return stopped


def status(local: Path = LOCAL) -> dict[str, dict[str, Any]]:
    """Of each server: ``{"private", "running", "pid", "port", "data", "log", "url"}``.

    ``private`` is false where its variable names another; then ``url`` is that one and the rest is about our own.
    """
    kept = load(local)
    answer = {}
    for name, (cls, variable, _) in _SERVERS.items():
        part = kept.get(name, {})
        server = cls(local, part)
        running = server.answers()
        private = name in private_names(local)
        url = server.url if "port" in part and "password" in part else None
        answer[name] = {
            "private": private,
            "running": running,
            "pid": server.pid() if running else None,
            "port": part.get("port"),
            "data": str(server.data),
            "log": str(server.log),
            "url": url if private else os.environ[variable],
        }
    return answer
