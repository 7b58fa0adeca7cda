"""A variable that cannot be read stops the start, in one line that names it, and nothing is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environs import Env

from orchestrator.config import ConfigError, database_settings, load_engine_settings, read_environment
from orchestrator.services.state import locked
from tests.harness.processes import MANAGE

WRONG = [
    ("DEBUG", "maybe"),
    ("PORT", "eighty"),
    ("PORT", "0"),
    ("PORT", "70000"),
    ("LOG_LEVEL", "loud"),
    ("DATABASE_URL", "mysql://user@host/name"),
    ("DATABASE_URL", "sqlite:///file.db"),
    ("DATABASE_URL", "just words"),
    ("DATABASE_URL", "postgresql://user@host:port/name"),
    ("DATABASE_URL", "postgresql://[::1/name"),
    ("REDIS_URL", "localhost"),
    ("REDIS_URL", "http://localhost:6379"),
    ("REDIS_URL", "redis://localhost:six"),
    ("ALERT_WEBHOOK_URL", "hooks.example.com"),
    ("ARTIFACTS_URL", "gs://bucket"),
    ("ORCHESTRATOR_WORKFLOWS", "shop workflows"),
    ("ORCHESTRATOR_WORKFLOWS", "shop/workflows"),
    ("ORCHESTRATOR_LEASE_SECONDS", "soon"),
    ("ORCHESTRATOR_LEASE_SECONDS", "nan"),
    ("ORCHESTRATOR_LEASE_SECONDS", "inf"),
    ("ORCHESTRATOR_SWEEP_SECONDS", "0"),
    ("ORCHESTRATOR_CANCEL_GRACE_SECONDS", "-1"),
    ("ORCHESTRATOR_INLINE_BYTES", "64k"),
    ("ORCHESTRATOR_INLINE_BYTES", "-1"),
    ("ORCHESTRATOR_DEFAULT_DEADLINE", "1 day"),
    ("ORCHESTRATOR_DEFAULT_TIMEOUT", "10x"),
    ("ORCHESTRATOR_SYNCHRONOUS_COMMIT", "perhaps"),
    ("ORCHESTRATOR_TOPIC_LIMITS", "gpu"),
    ("ORCHESTRATOR_TOPIC_LIMITS", "gpu=4,mail=-1"),
    ("ORCHESTRATOR_TOPIC_LIMITS", "=4"),
    ("ORCHESTRATOR_ON_LOCK_CONFLICT", "wait"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"^environment variable {name}: ") as refused:
        read_environment(Env())
    assert "\n" not in str(refused.value)


def test_limits_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_TOPIC_LIMITS", "gpu=4, mail = none,fax=0")
    assert load_engine_settings(Env()).topic_limits == {"gpu": 4, "mail": None, "fax": 0}
    monkeypatch.delenv("ORCHESTRATOR_TOPIC_LIMITS")
    assert load_engine_settings(Env()).topic_limits == {}


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("0.25", 0.25), ("2h", 7200.0), (" 90s ", 90.0), ("", 30.0)]
)
def test_lengths_of_time(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("ORCHESTRATOR_LEASE_SECONDS", text)
    assert load_engine_settings(Env()).lease_seconds == seconds


def test_empty_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for name, _ in WRONG}:
        monkeypatch.setenv(name, "")
    environment, engine = read_environment(Env())
    assert (environment.port, environment.database, environment.redis) == (8000, "", "")
    assert engine.workflows == ["examples.video_upload"]
    assert (engine.default_deadline, engine.default_timeout) == (86400.0, 600.0)


def test_workflows_are_separated_by_colons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_WORKFLOWS", "shop.workflows:media.workflows")
    assert load_engine_settings(Env()).workflows == ["shop.workflows", "media.workflows"]


def test_a_database_url_is_taken_apart() -> None:
    entry = database_settings("postgres://us%40er:p%2Fw@db.example.com:5433/na%20me?sslmode=require")
    assert {key: entry[key] for key in ("USER", "PASSWORD", "HOST", "PORT", "NAME", "OPTIONS")} == {
        "USER": "us@er",
        "PASSWORD": "p/w",
        "HOST": "db.example.com",
        "PORT": "5433",
        "NAME": "na me",
        "OPTIONS": {"sslmode": "require"},
    }


def test_a_database_url_with_a_standby() -> None:
    url = "postgresql://u:p@/name?host=db1,db2&port=5432,5433&target_session_attrs=read-write"
    entry = database_settings(url)
    assert (entry["HOST"], entry["PORT"]) == ("db1,db2", "5432,5433")
    assert entry["OPTIONS"] == {"target_session_attrs": "read-write"}


def test_a_database_url_by_socket() -> None:
    assert database_settings("postgresql:///name?host=/run/postgresql")["HOST"] == "/run/postgresql"


@pytest.mark.parametrize("command", ["migrate", "check", "services", "up"])
def test_commands_stop_in_one_line(command: str) -> None:
    more = ["status"] if command == "services" else []
    done = subprocess.run(
        [sys.executable, MANAGE, command, *more],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "orchestrator.settings", "PORT": "eighty"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: environment variable PORT: 'eighty' is not a whole number\n"


def test_what_this_machine_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "project" / ".local"):
        assert (tmp_path / "project" / ".local").stat().st_mode & 0o077 == 0
