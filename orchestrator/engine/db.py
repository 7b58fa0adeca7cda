"""Connections and transactions of the engine.

The engine speaks psycopg directly: a worker process opens a connection of its own after the fork, so that what a
handler does to Django's connection cannot reach the record, and pipelines its statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.db import connection as django_connection
from django.db import transaction
from psycopg import errors
from psycopg.rows import namedtuple_row

from orchestrator.engine.arrays import with_literals

Connection = psycopg.Connection[Any]
T = TypeVar("T")

SQL_DIR = Path(__file__).parent / "sql"
#: Serialisation trouble that a second try cures: deadlock detected, serialisation failure.
RETRIED = (errors.DeadlockDetected, errors.SerializationFailure)


@cache
def sql(name: str) -> str:
    """The statement in ``sql/<name>.sql`` without comments: psycopg remembers how it parsed short ones only."""
    lines = (line.strip() for line in (SQL_DIR / f"{name}.sql").read_text().splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))


#: The hot statements find rows by arrays of keys: looking each up by its index is right whatever the tables hold, and
#: no plan has to be made again. A planner that has seen the tables empty would scan them.
_BY_KEY = """
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;
SET plan_cache_mode = force_generic_plan
"""


def connect(application_name: str = "switchyard", *, hot: bool = False) -> Connection:
    """A connection of the engine's own, in autocommit; transactions are opened by :func:`in_transaction`.

    ``hot``: for claiming and settling alone, with plans by key.
    """
    conf = settings.DATABASES["default"]
    params = {
        "host": conf["HOST"] or None,
        "port": conf["PORT"] or None,
        "user": conf["USER"] or None,
        "password": conf["PASSWORD"] or None,
        "dbname": conf["NAME"],
        "application_name": application_name,
        **conf.get("OPTIONS", {}),
    }
    conn = psycopg.connect(
        **{k: v for k, v in params.items() if v is not None}, autocommit=True, row_factory=namedtuple_row
    )
    conn.prepare_threshold = 2
    # Compiling a statement takes longer than running any of ours.
    conn.execute("SET jit = off")
    if hot:
        conn.execute(_BY_KEY)
    return conn


def in_transaction(conn: Connection, work: Callable[[], T], attempts: int = 5) -> T:
    """Runs ``work`` in a transaction on the engine's connection; deadlocks are tried again from the start."""
    for left in range(attempts - 1, -1, -1):
        try:
            with conn.transaction():
                return work()
        except RETRIED:
            if not left:
                raise
    raise AssertionError("unreachable")


@contextmanager
def caller_transaction() -> Iterator[Connection]:
    """The caller's own Django transaction as an engine connection.

    What is written becomes visible if and only if the caller commits. Settings of the transaction are left alone.
    """
    with transaction.atomic():
        yield caller_connection()


def caller_connection() -> Connection:
    """The caller's Django connection, in whatever transaction it is."""
    django_connection.ensure_connection()
    raw: Connection = django_connection.connection
    if raw.prepare_threshold is None:
        # Django leaves statements unprepared; planning the one that submits takes longer than running it.
        raw.prepare_threshold = 2
    return raw


def put(conn: Connection, statement: str, params: Any = None) -> psycopg.Cursor[Any]:
    """Sends a statement whose rows, if any, are fetched later: in pipeline mode it costs no round trip of its own."""
    cursor = psycopg.Cursor(conn, row_factory=namedtuple_row)
    cursor.execute(statement, with_literals(params))
    return cursor


def rows(conn: Connection, statement: str, params: Any = None) -> list[Any]:
    """Named rows of one statement, on either kind of connection."""
    return put(conn, statement, params).fetchall()


def relax_commit(conn: Connection) -> None:
    """This transaction need not wait for the disk: a crash of the database can only make a step run again."""
    if not settings.ORCHESTRATOR.sync_commit:
        put(conn, "SELECT set_config('synchronous_commit', 'off', true)")


def sync_commit(conn: Connection) -> None:
    """This transaction ends a run: it waits for the disk after all."""
    put(conn, "SELECT set_config('synchronous_commit', 'on', true)")


def notify(conn: Connection) -> None:
    """Wakes the dispatcher when this commits."""
    put(conn, "SELECT pg_notify('switchyard_outbox', '')")
