"""What ``manage.py`` does before a command: starts the private servers that it needs, and keeps their tables current.

With ``DATABASE_URL`` and ``REDIS_URL`` set it does nothing. A database of your own is never migrated from here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from environs import Env

from orchestrator.config import ConfigError, read_environment
from orchestrator.services import LOCAL, PROJECT, ServicesError, Urls, ensure, private_names
from orchestrator.services.state import load, locked, save

#: Commands that need no server, or look after the servers themselves.
WITHOUT_SERVERS = frozenset(
    {
        *("help", "version", "services", "up", "check", "collectstatic", "findstatic", "makemigrations"),
        *("diffsettings", "startapp", "startproject", "compilemessages", "makemessages"),
        *("sqlmigrate", "squashmigrations", "optimizemigration"),
    }
)
#: Commands that decide about the tables themselves.
WITHOUT_TABLES = frozenset({"migrate", "showmigrations", "dbshell", "flush", "test", "testserver"})


def prepare(argv: list[str]) -> None:
    """Called with the command line, before Django reads the settings. Exits with one line where it fails."""
    command = argv[1] if len(argv) > 1 else "help"
    if command in WITHOUT_SERVERS or command.startswith("-") or {"-h", "--help", "--version"} & set(argv):
        return
    try:
        read_environment(Env())  # first, so that a wrong value starts nothing
        urls = ensure()
        if urls.started:
            say(f"started the private {' and '.join(urls.started)}; stop with: python manage.py services stop")
        if "postgres" in private_names() and command not in WITHOUT_TABLES:
            migrate_private(urls)
    except (ConfigError, ServicesError) as error:
        sys.exit(f"error: {error}")


def migrate_private(urls: Urls, local: Path = LOCAL) -> None:
    """Brings the tables of the private database up to this code's; free when they are.

    Raises:
        ServicesError: a migration fails.
    """
    wanted = _fingerprint()
    if load(local).get("migrated") == [urls.database, wanted]:
        return
    with locked(local):
        kept = load(local)
        if kept.get("migrated") == [urls.database, wanted]:
            return
        say("making the tables of the private database")
        environment = {**os.environ, "DATABASE_URL": urls.database, "REDIS_URL": urls.redis}
        environment.setdefault("SECRET_KEY", "migrations sign nothing")
        command = [sys.executable, str(PROJECT / "manage.py"), "migrate", "--verbosity", "0"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr.strip() or "no reason given").splitlines()
            raise ServicesError(f"the private database cannot be migrated: {lines[-1]}; see: python manage.py migrate")
        kept["migrated"] = [urls.database, wanted]
        save(local, kept)


def say(text: str) -> None:
    """Tells the person at the terminal; stdout belongs to the command."""
    print(f"switchyard: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _fingerprint() -> str:
    """Changes whenever a migration is added or a package that has some is upgraded."""
    names = [str(path.relative_to(PROJECT)) for path in PROJECT.glob("*/migrations/*.py")]
    packages = [f"{name} {version(name)}" for name in ("django", "django-rq")]
    return hashlib.sha256("\n".join(sorted(names) + packages).encode()).hexdigest()[:16]
