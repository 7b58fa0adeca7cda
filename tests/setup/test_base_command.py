"""What every command does alike: exit codes, one document of JSON, one line for what a person can cause."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from orchestrator.core.errors import NotFound
from orchestrator.management import base
from orchestrator.models import Run
from tests.harness.processes import MANAGE

SOME_ID = UUID("01890000-0000-7000-8000-000000000000")


class Sample(base.Command):
    """Does what its argument says."""

    def arguments(self, parser: Any) -> None:
        parser.add_argument("what")

    def run(self, **options: Any) -> None:
        match options["what"]:
            case "answer":
                self.note("working")
                self.emit({"id": SOME_ID, "at": datetime(2026, 1, 2, tzinfo=UTC), "name": "é"}, text="fine")
            case "refuse":
                raise NotFound("there is no run 7")
            case "usage":
                raise base.UsageError("give --reason")
            case "plain":
                raise CommandError("no")
            case "redis":
                import redis

                redis.Redis.from_url("redis://127.0.0.1:1").ping()
            case "defect":
                raise ZeroDivisionError("ours")


def call(what: str, *flags: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command(Sample(), what, *flags, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def from_shell(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = 0
    try:
        Sample().run_from_argv(["manage.py", "sample", *argv])
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_text_for_people_and_progress_apart() -> None:
    assert call("answer") == ("fine\n", "working\n")


def test_json_is_one_document_and_nothing_else() -> None:
    out, err = call("answer", "--json")
    assert json.loads(out) == {"id": str(SOME_ID), "at": "2026-01-02T00:00:00Z", "name": "é"}
    assert out.count("\n") == 1
    assert err == "working\n"


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [("refuse", 1, "error: there is no run 7\n"), ("usage", 2, "error: give --reason\n"), ("plain", 1, "error: no\n")],
)
def test_refusals(capsys: pytest.CaptureFixture[str], what: str, code: int, said: str) -> None:
    assert from_shell(capsys, what) == (code, "", said)


def test_with_json_a_refusal_is_one_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = from_shell(capsys, "refuse", "--json")
    assert (code, json.loads(out)) == (1, {"error": {"code": "not_found", "message": "there is no run 7"}})
    assert err == "error: there is no run 7\n"
    code, out, _ = from_shell(capsys, "usage", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "usage")


def test_with_json_wrong_usage_is_one_document_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["answer", "--no-such-flag", "--json"]
    monkeypatch.setattr(sys, "argv", ["manage.py", "sample", *words])
    code, out, err = from_shell(capsys, *words)
    assert (code, json.loads(out)["error"]["code"]) == (2, "usage")
    assert "--no-such-flag" in err


def test_wrong_usage_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = from_shell(capsys, "answer", "--no-such-flag")
    assert (code, out) == (2, "")
    assert "--no-such-flag" in err


def test_redis_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = from_shell(capsys, "redis")
    assert code == 1
    assert err.startswith("error: cannot reach Redis at ")
    assert err.endswith("check REDIS_URL or unset it to use the private server\n")
    assert err.count("\n") == 1


def test_a_defect_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        call("defect")


def test_called_from_code_a_refusal_is_a_command_error() -> None:
    with pytest.raises(CommandError, match="there is no run 7"):
        call("refuse")


def manage(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, MANAGE, *command],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "orchestrator.settings", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [["migrate"], ["bootstrap"], ["createsuperuser", "--no-input"]])
def test_database_out_of_reach(command: list[str]) -> None:
    done = manage(*command, DATABASE_URL="postgresql://user@127.0.0.1:1/name")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: cannot reach PostgreSQL at 127.0.0.1:1: Connection refused; "
        "check DATABASE_URL or unset it to use the private server"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.servers
def test_no_tables_yet(scratch_database: Any) -> None:
    """A command that meets an empty database says what to run."""
    with scratch_database.connect() as server:
        name = f"{scratch_database.name}_empty"
        server.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        try:
            done = manage("bootstrap", DATABASE_URL=scratch_database.url.replace(scratch_database.name, name))
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    assert done.returncode == 1
    assert "run: python manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.django_db
def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from django.db import connection
    from django.db.utils import NotSupportedError

    from orchestrator.management.errors import explain_error

    assert Run.objects.count() == 0
    monkeypatch.setattr(connection, "get_database_version", lambda: (14, 9))
    with pytest.raises(NotSupportedError) as refused:
        connection.check_database_version_supported()
    said = explain_error(refused.value)
    assert said is not None
    assert "PostgreSQL 15 or later" in said
    assert "14.9" in said
