"""``/healthz`` and ``/readyz``: in time, whatever is down, and which part it is."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from orchestrator import readiness
from orchestrator.models import Beat


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers, as a stopped server does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def fresh_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a question left hanging by one test is not asked of the next."""
    monkeypatch.setattr(readiness, "_DATABASE", readiness.Bounded(readiness._database))
    monkeypatch.setattr(readiness, "_REDIS", readiness.Bounded(lambda: readiness.ping(1.0) or ""))


def ready() -> tuple[int, dict[str, str], float]:
    begun = time.monotonic()
    response = Client().get("/readyz")
    return response.status_code, response.json()["parts"], time.monotonic() - begun


@pytest.mark.django_db(transaction=True)
def test_ready_when_all_parts_answer() -> None:
    Beat.objects.create(name="dispatcher")
    assert ready()[:2] == (200, {"database": "ok", "dispatcher": "ok", "redis": "ok"})


@pytest.mark.django_db(transaction=True)
def test_a_dispatcher_not_seen_lately_is_named() -> None:
    assert ready()[:2] == (503, {"database": "ok", "dispatcher": "never seen", "redis": "ok"})
    Beat.objects.create(name="dispatcher", beat_at=timezone.now() - timedelta(minutes=5))
    status, parts, _ = ready()
    assert status == 503
    assert parts["dispatcher"].startswith("last seen 30")


@pytest.mark.django_db(transaction=True)
def test_redis_stopped_or_silent_takes_less_than_two_seconds(settings: Any, silent: int) -> None:
    Beat.objects.create(name="dispatcher")
    for port in (1, silent):
        settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
        status, parts, took = ready()
        assert (status, parts["database"], parts["redis"]) == (503, "ok", "cannot be reached")
        assert took < 2


@pytest.mark.django_db(transaction=True)
def test_a_silent_database_takes_less_than_two_seconds_and_one_thread(
    monkeypatch: pytest.MonkeyPatch, settings: Any, silent: int
) -> None:
    entry = {**settings.DATABASES["default"], "HOST": "127.0.0.1", "PORT": str(silent)}
    monkeypatch.setitem(settings.DATABASES, "default", entry)
    asked = []
    connect = readiness.connect
    monkeypatch.setattr(readiness, "connect", lambda name: asked.append(name) or connect(name))
    for _ in range(2):
        status, parts, took = ready()
        assert (status, parts["database"], parts["dispatcher"]) == (503, "no answer in time", "unknown")
        assert took < 2
    assert len(asked) == 1


@pytest.mark.django_db(transaction=True)
def test_a_read_only_database_is_not_ready(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    entry = {**settings.DATABASES["default"], "OPTIONS": {"options": "-c default_transaction_read_only=on"}}
    monkeypatch.setitem(settings.DATABASES, "default", entry)
    assert ready()[1]["database"] == "read-only"


def test_the_process_is_up_without_asking_anybody() -> None:
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert Client().post("/healthz").status_code == 405
