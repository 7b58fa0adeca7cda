"""From nothing to a system that runs: the commands behind ``make setup`` and ``make run``, each in a new ``.local``."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator import services
from orchestrator.services.process import free_port
from tests.harness.processes import MANAGE, PROJECT
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]
SET_APART = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "STATIC_HASHED", "MAKELEVEL", "PORT")


class Machine:
    """A fresh ``.local`` and the environment of somebody who has set nothing."""

    def __init__(self, local: Path) -> None:
        self.local = local
        self.environment = {name: value for name, value in os.environ.items() if name not in SET_APART}
        self.environment |= {"DJANGO_SETTINGS_MODULE": "orchestrator.settings", "LOCAL_DIR": str(local)}

    def manage(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        return subprocess.run(
            [sys.executable, MANAGE, *command],
            cwd="/",
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def answer(self, *command: str, **environment: str) -> Any:
        """The JSON answer of a command that must succeed."""
        done = self.manage(*command, "--json", **environment)
        assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def up(self, port: int) -> subprocess.Popen[str]:
        """``manage.py up`` in the background."""
        out = (self.local / "up.out").open("w")
        with out:
            return subprocess.Popen(
                [sys.executable, MANAGE, "up"],
                env=self.environment | {"PORT": str(port)},
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=PROJECT,
            )

    def said(self) -> str:
        """What ``up`` printed."""
        return (self.local / "up.out").read_text()


@pytest.fixture
def machine(fresh_local: Path) -> Machine:
    return Machine(fresh_local)


def test_the_services_command(machine: Machine) -> None:
    assert machine.manage("services", "status").returncode == 1
    assert all(server["running"] for server in machine.answer("services", "start").values())
    shown = machine.manage("services", "env").stdout
    found = re.fullmatch(r"export DATABASE_URL=(\S+) REDIS_URL=(\S+)\n", shown)
    assert found, shown
    with psycopg.connect(found[1]) as connection:
        assert connection.execute("SELECT count(*) FROM workflow_runs").fetchone() == (0,), "tables are there"
    assert machine.manage("services", "status").returncode == 0
    # As after eval "$(manage.py services env)": still ours to start and stop.
    urls = {"DATABASE_URL": found[1], "REDIS_URL": found[2]}
    assert machine.answer("services", "stop", **urls) == {"stopped": ["PostgreSQL", "Valkey"]}
    assert machine.answer("services", "env", **urls) == urls
    assert machine.manage("services", "reset").returncode == 2
    assert machine.manage("services", "reset", "--yes").returncode == 0
    assert not (machine.local / "pg").exists()
    assert machine.manage("services", "rewind").returncode == 2


def test_any_command_starts_what_it_needs_and_help_starts_nothing(machine: Machine) -> None:
    assert machine.manage("help").returncode == 0
    assert machine.manage("publish", "--help").returncode == 0
    assert machine.manage("check").returncode == 0
    assert not (machine.local / "pg").exists()
    done = machine.manage("publish", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert "started the private PostgreSQL and Valkey" in done.stderr


def test_with_urls_set_nothing_private_starts(machine: Machine) -> None:
    done = machine.manage(
        "showmigrations", DATABASE_URL="postgresql://u@127.0.0.1:1/x", REDIS_URL="redis://127.0.0.1:1"
    )
    assert done.returncode == 1
    assert "cannot reach PostgreSQL at 127.0.0.1:1" in done.stderr
    assert not (machine.local / "pg").exists()
    assert not (machine.local / "valkey").exists()


def test_bootstrap_may_be_repeated(machine: Machine) -> None:
    first = machine.manage("bootstrap", "--no-samples", "--url", "http://here:1", "--json")
    assert first.returncode == 0, first.stderr
    path = machine.local / "credentials.json"
    assert path.stat().st_mode & 0o777 == 0o600
    credentials = json.loads(path.read_text())
    assert set(credentials) == {"url", "token", "users"}
    assert set(credentials["users"]) == {"admin", "operator", "support", "viewer"}
    assert all(len(user["password"]) >= 12 for user in credentials["users"].values())
    assert "password" not in first.stdout
    assert machine.manage("bootstrap", "--no-samples", "--url", "http://here:2").returncode == 0
    assert json.loads(path.read_text()) == credentials | {"url": "http://here:2"}
    # A file that was lost, in a private database: new passwords, so that somebody can sign in again.
    path.unlink()
    assert machine.manage("bootstrap", "--no-samples").returncode == 0
    again = json.loads(path.read_text())
    assert again["users"] != credentials["users"]
    code = (
        "from django.contrib.auth import authenticate; import json; "
        f"kept = json.load(open({str(path)!r})); "
        "print([authenticate(username=u, password=p['password']).groups.get().name for u, p in kept['users'].items()])"
    )
    assert "['admin', 'operator', 'support', 'viewer']" in machine.manage("shell", "--no-imports", "-c", code).stdout


def test_a_database_of_your_own_keeps_its_passwords(machine: Machine) -> None:
    urls = machine.answer("services", "env")
    assert machine.manage("bootstrap", "--no-samples", **urls).returncode == 0
    path = machine.local / "credentials.json"
    assert all(user["password"] for user in json.loads(path.read_text())["users"].values())
    path.unlink()
    assert machine.manage("bootstrap", "--no-samples", **urls).returncode == 0
    assert all(user["password"] is None for user in json.loads(path.read_text())["users"].values())


def test_a_port_in_use_stops_up_before_anything_starts(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = machine.manage("up", PORT=str(port))
    assert done.returncode == 1
    assert f"error: port {port} is in use" in done.stderr
    assert not (machine.local / "pg").exists()


def test_up_until_it_is_stopped(machine: Machine) -> None:
    port = free_port()
    up = machine.up(port)
    try:
        wait_until(lambda: "sign in as" in machine.said() or up.poll() is not None, 120, why=machine.said)
        assert up.poll() is None, machine.said()
        assert f"http://127.0.0.1:{port}/" in machine.said()
        assert _status(f"http://127.0.0.1:{port}/admin/login/") == 200
        second = machine.manage("up", PORT=str(free_port()))
        assert second.returncode == 1
        assert "error: Switchyard runs already" in second.stderr
        assert machine.manage("services", "reset", "--yes").returncode == 1
        os.kill(services.status(machine.local)["valkey"]["pid"], signal.SIGKILL)
        wait_until(lambda: "Valkey had stopped; started again" in machine.said(), 20, why=machine.said)
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
        assert not any(server["running"] for server in services.status(machine.local).values())
    finally:
        up.kill()
        up.wait()


def test_after_a_kill_the_next_up_takes_over_and_stops_all(machine: Machine) -> None:
    for end in (signal.SIGKILL, signal.SIGTERM):
        up = machine.up(free_port())
        try:
            wait_until(lambda: "sign in as" in machine.said() or up.poll() is not None, 120, why=machine.said)  # noqa: B023
            assert all(server["running"] for server in services.status(machine.local).values())
            up.send_signal(end)
            up.wait(30)
        finally:
            up.kill()
            up.wait()
    assert not any(server["running"] for server in services.status(machine.local).values())


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
