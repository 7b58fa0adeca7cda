"""No process's own clock decides anything: the record's does, and in between the monotonic one."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import connection

from orchestrator.core.actor import Actor
from orchestrator.engine import clock
from orchestrator.engine.operate import extend_run
from orchestrator.models import Run
from tests.harness import factory

CODE = Path(__file__).resolve().parents[2] / "orchestrator"
#: What asks this process for the time of day.
_CALLS = {("datetime", "now"), ("datetime", "utcnow"), ("timezone", "now"), ("time", "time"), ("date", "today")}


def asked(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    return [
        f"{path.relative_to(CODE)}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        if (node.func.value.id, node.func.attr) in _CALLS
    ]


def test_engine_and_transport_ask_no_process_for_the_time():
    """C39: a clock that is wrong, or is set, must not end a run, hold one up or send an alert late."""
    found = [place for part in ("core", "engine", "transport") for path in (CODE / part).rglob("*.py")
             for place in asked(path)]  # fmt: skip
    found += asked(CODE / "alerts.py")
    assert [place for place in found if not place.startswith("engine/clock.py")] == []
    assert asked(CODE / "engine/clock.py"), "the one fallback; if this finds nothing it looks for nothing"


@pytest.fixture
def wrong(monkeypatch):
    """This process's clock is two hours ahead, and says so to whoever asks Django."""
    monkeypatch.setattr(clock, "_known", [])
    monkeypatch.setattr(clock.timezone, "now", lambda: datetime.now(UTC) + timedelta(hours=2))


def test_what_is_shown_is_the_records_time(db, wrong):
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (said,) = cursor.fetchone()
    assert timedelta(0) <= clock.record_now() - said < timedelta(seconds=30)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        assert clock.record_now() >= cursor.fetchone()[0], "never behind what the record has just said"


def test_without_a_connection_the_process_is_asked(monkeypatch, wrong):
    monkeypatch.setattr(clock, "connection", SimpleNamespace(connection=None))
    assert clock.record_now() - datetime.now(UTC) > timedelta(hours=1)


def test_more_time_counts_from_the_records_now(db, wrong):
    run = factory.make("queued")
    extend_run(run.pk, "5m", Actor("olga", "operator"), "slow disks")
    until = Run.objects.get(pk=run.pk).deadline_at
    assert timedelta(minutes=4) < until - datetime.now(UTC) < timedelta(minutes=5, seconds=1)


def test_a_handler_that_looks_is_not_stopped_at_a_deadline_that_was_moved(kit):
    """It was claimed under a deadline one second ahead, and extended while it runs."""
    run = kit.go("solo", {"a": "check; extend; coop:1.5; check"}, deadline=1)
    assert (run.state, run.cause) == ("done", None)


def test_a_handler_that_looks_stops_when_the_record_says_so(kit):
    run = kit.go("solo", {"a": "coop:30"}, deadline=1)
    assert (run.state, run.cause, kit.row(run, "a").state) == ("failed", "deadline", "cancelled")
    assert (run.finished_at - run.deadline_at).total_seconds() < 5
