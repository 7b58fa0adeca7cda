"""`versions`: what a deploy asks before it drops old code."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from orchestrator.definitions import registry
from orchestrator.definitions.publish import publish
from orchestrator.engine.submit import submit
from orchestrator.management.base import error

pytestmark = pytest.mark.django_db


@pytest.fixture
def kit(settings, monkeypatch):
    publish(["tests.workflows.kit"])
    monkeypatch.setattr(settings.ORCHESTRATOR.__class__, "workflows", ["tests.workflows.kit"], raising=False)


def answer(capsys, *arguments):
    call_command("versions", *arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_all_handlers_are_there(kit, capsys):
    submit("kit-solo", "s")
    found = answer(capsys, "--check")
    assert found["ok"]
    solo = next(v for v in found["versions"] if v["workflow"] == "kit-solo")
    assert (solo["version"], solo["live_runs"], solo["missing_handlers"]) == (1, 1, [])


def test_a_live_run_that_needs_a_handler_that_is_gone(kit, capsys, monkeypatch):
    submit("kit-saga", "s")
    monkeypatch.setitem(registry._handlers, "compensation", {})
    with pytest.raises(error, match="kit-saga v1") as refused:
        call_command("versions", "--check")
    assert refused.value.returncode == 1


def test_a_handler_that_is_gone_and_no_live_run(kit, capsys, monkeypatch):
    monkeypatch.setitem(registry._handlers, "compensation", {})
    found = answer(capsys, "--check")
    assert found["ok"]
    assert next(v for v in found["versions"] if v["workflow"] == "kit-saga")["missing_handlers"] == ["undo"]


def test_a_version_is_retired_by_command(kit, capsys):
    call_command("versions", "--retire", "kit-chain", "1", "--reason", "nobody needs it")
    capsys.readouterr()
    assert next(v for v in answer(capsys)["versions"] if v["workflow"] == "kit-chain")["retired_at"]
    with pytest.raises(error, match=r"no workflow 'kit-chain' is published|no version"):
        call_command("submit", "kit-chain", "--subject", "s")
    with pytest.raises(error, match="retired already"):
        call_command("versions", "--retire", "kit-chain", "1", "--reason", "again")
    call_command("versions", "--restore", "kit-chain", "1", "--reason", "somebody does")
    submit("kit-chain", "s")
    with pytest.raises(error, match="in use by 1 live run"):
        call_command("versions", "--retire", "kit-chain", "1", "--reason", "x")
    with pytest.raises(error, match="say why"):
        call_command("versions", "--retire", "kit-chain", "1")
    with pytest.raises(error, match="is not a number") as bad:
        call_command("versions", "--retire", "kit-chain", "one", "--reason", "x")
    assert bad.value.returncode == 2
