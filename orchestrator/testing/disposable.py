"""Which databases may be played with, and making one that may."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import psycopg
from django.conf import settings
from environs import Env

from orchestrator.config import read_bool
from orchestrator.core.errors import SwitchyardError

_WORDS = {"test", "tests", "disposable", "scratch"}


class Refused(SwitchyardError):
    """The database is not one that may be played with."""

    code = "not_disposable"


def is_disposable(name: str) -> bool:
    """Whether a database of this name may be played with: ``test``, ``disposable`` or ``scratch`` is a word of it.

    ``shop_test``, ``test-shop`` and ``scratch_2`` are; ``latest`` and ``contest`` are not.
    ``ORCHESTRATOR_DISPOSABLE=1`` says it of any.
    """
    return bool(_WORDS & set(re.split(r"[^a-z]+", name.lower()))) or read_bool(Env(), "ORCHESTRATOR_DISPOSABLE", False)


def database_name() -> str:
    """The database that this process works on."""
    return str(settings.DATABASES["default"]["NAME"])


def require_disposable(what: str) -> None:
    """Refuses any other database.

    Raises:
        Refused: the message says what to do.
    """
    name = database_name()
    if not is_disposable(name):
        raise Refused(
            f"{what} kills workers and fails steps on purpose, and the database {name!r} is not marked as disposable; "
            "nothing was touched. Point DATABASE_URL at one whose name has test, disposable or scratch as a word "
            "(switchyard_test, scratch_1), or set ORCHESTRATOR_DISPOSABLE=1 if this one may be thrown away"
        )


def database_url(name: str | None = None) -> str:
    """The address of this process's database, or of another on the same server."""
    conf = settings.DATABASES["default"]
    secret = f":{quote(conf['PASSWORD'], safe='')}" if conf["PASSWORD"] else ""
    options = dict(conf["OPTIONS"])
    host = str(conf["HOST"])
    if host.startswith("/"):
        options["host"], host = host, ""
    port = f":{conf['PORT']}" if conf["PORT"] else ""
    query = f"?{urlencode(options)}" if options else ""
    user = quote(conf["USER"], safe="")
    return f"postgresql://{user}{secret}{'@' if user else ''}{host}{port}/{quote(name or conf['NAME'], safe='')}{query}"


@contextmanager
def scratch_database(keep: bool = False) -> Iterator[str]:
    """Makes an empty database beside this process's own; yields its address and drops it at the end."""
    name = f"switchyard_scratch_{os.getpid()}_{secrets.token_hex(3)}"
    with _server() as server:
        server.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        yield database_url(name)
    finally:
        if not keep:
            with _server() as server:
                server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _server() -> psycopg.Connection:
    conf = settings.DATABASES["default"]
    given = {"host": conf["HOST"], "port": conf["PORT"], "user": conf["USER"], "password": conf["PASSWORD"]}
    return psycopg.connect(
        **{key: value for key, value in given.items() if value}, **conf["OPTIONS"], dbname="postgres", autocommit=True
    )
