"""A database whose data are committed, so that other processes see them."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import psycopg
from django.conf import settings
from django.db import connection, connections

from orchestrator.engine import plans, submit
from orchestrator.services.process import arguments

#: Filled by migrations, and part of what a fresh database is.
KEPT = ("django_migrations", "django_content_type", "auth_permission", "auth_group", "auth_group_permissions")


@dataclass(frozen=True)
class ScratchDatabase:
    """``sy_test_<pid>_<random>``: made by copying, emptied between tests, dropped at the end."""

    name: str
    source: str

    @classmethod
    def make(cls) -> ScratchDatabase:
        """Copies the database that pytest-django has made. Nobody may be connected to that one meanwhile."""
        source = str(connection.settings_dict["NAME"])
        scratch = cls(f"sy_test_{os.getpid()}_{secrets.token_hex(3)}", source)
        connections.close_all()
        with _server() as server:
            if settings.DATABASES["default"]["HOST"] == "127.0.0.1":
                _drop_left_behind(server)
            server.execute(f'CREATE DATABASE "{scratch.name}" TEMPLATE "{source}"')
        return scratch

    @property
    def url(self) -> str:
        """Its address, for ``DATABASE_URL``."""
        conf = settings.DATABASES["default"]
        secret = f":{quote(conf['PASSWORD'], safe='')}" if conf["PASSWORD"] else ""
        options = {**conf["OPTIONS"], **({"host": conf["HOST"]} if "/" in conf["HOST"] else {})}
        host = "" if "/" in conf["HOST"] else conf["HOST"]
        port = f":{conf['PORT']}" if conf["PORT"] else ""
        query = f"?{urlencode(options)}" if options else ""
        return f"postgresql://{quote(conf['USER'], safe='')}{secret}@{host}{port}/{self.name}{query}"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Points Django and the engine of this process at it."""
        self._point(self.name)
        try:
            yield
        finally:
            self._point(self.source)

    def empty(self) -> None:
        """Deletes all rows but those of migrations. Connections that killed processes left are closed first."""
        with self.connect() as server:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            tables = server.execute(
                "SELECT string_agg(format('%%I', tablename), ', ') FROM pg_tables "
                "WHERE schemaname = 'public' AND tablename <> ALL(%s)",
                [list(KEPT)],
            ).fetchone()
            assert tables
            server.execute(f"TRUNCATE {tables[0]} RESTART IDENTITY CASCADE")

    def drop(self) -> None:
        """Deletes the database."""
        connections.close_all()
        with _server() as server:
            server.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    def connect(self) -> psycopg.Connection:
        """A plain connection, in autocommit."""
        return _connect(self.name)

    def _point(self, name: str) -> None:
        connections.close_all()
        plans.forget()
        submit._first.clear()
        settings.DATABASES["default"]["NAME"] = name
        connection.settings_dict["NAME"] = name


def _drop_left_behind(server: psycopg.Connection) -> None:
    """Deletes what sessions that were killed left on this machine's server."""
    for (name,) in server.execute(
        "SELECT datname FROM pg_database WHERE datname ~ '^(sy_test|test_sy)_[0-9]+'"
    ).fetchall():
        pid = re.search(r"\d+", name)
        if pid and not arguments(int(pid[0])):
            server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def others_are_connected() -> bool:
    """Whether another program uses the server."""
    with _server() as server:
        row = server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
            "AND datname <> ALL(%s)",
            [[f"test_sy_{os.getpid()}"]],
        ).fetchone()
    return bool(row and row[0])


def _server() -> psycopg.Connection:
    return _connect("postgres")


def _connect(name: str) -> psycopg.Connection:
    conf = settings.DATABASES["default"]
    given = {"host": conf["HOST"], "port": conf["PORT"], "user": conf["USER"], "password": conf["PASSWORD"]}
    return psycopg.connect(
        **{key: value for key, value in given.items() if value}, **conf["OPTIONS"], dbname=name, autocommit=True
    )
