"""A page that would keep the database busy is stopped and says so; with real statements."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from dashboard import patience


def sleeps() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")
    return []


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.2)


def test_a_slow_statement_ends_in_a_page_that_says_what_to_do(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.queries.workflows.all_workflows", sleeps)
    answer = viewer.get("/workflows/")
    text = answer.content.decode()
    assert answer.status_code == 503
    assert answer["Retry-After"]
    assert "took too long" in text and "Nothing was changed" in text
    assert "<nav" not in text, "it asks the database for nothing more"


def test_an_action_is_not_cut_short(viewer: Client, sign_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: Any, **__: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.5)")

    viewer.get("/schedules/")
    monkeypatch.setattr("orchestrator.engine.operate.pause_schedule", wait)
    answer = sign_in("admin").post("/schedules/pause/", {"workflow": "nightly", "reason": "x"})
    assert answer.status_code == 302


def test_other_errors_are_left_alone() -> None:
    assert patience.Patience(lambda request: None).process_exception(None, ValueError("x")) is None  # type: ignore[arg-type,return-value]


def raises(statement: str) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return fail


def test_a_database_that_goes_away_is_told_and_is_no_defect(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = raises("DO $$ BEGIN RAISE EXCEPTION 'terminating connection' USING ERRCODE = '57P01'; END $$")
    monkeypatch.setattr("dashboard.queries.workflows.all_workflows", gone)
    answer = viewer.get("/workflows/")
    text = answer.content.decode()
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")
    assert "The database does not answer" in text and "No run is lost" in text
    assert "<nav" not in text, "it asks the database for nothing more"


def test_a_database_that_is_read_only_says_that_nothing_was_changed(
    viewer: Client, sign_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = raises("DO $$ BEGIN RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$")
    monkeypatch.setattr("orchestrator.engine.operate.pause_schedule", refuses)
    answer = sign_in("admin").post("/schedules/pause/", {"workflow": "nightly", "reason": "x"})
    assert answer.status_code == 503 and "nothing was changed" in answer.content.decode()
