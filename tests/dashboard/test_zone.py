"""Times in the reader's zone, days where a run crosses midnight, and the history of a run as a file."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from dashboard.graph.timeline import _Axis, _ticks
from dashboard.zone import zone_of
from orchestrator.core.states import StepState, WaitingFor
from orchestrator.engine.explain_words import clock, clock_zone
from tests.dashboard.conftest import SignIn
from tests.harness.factory import Build, make, step_spec, workflow_spec

NIGHT = datetime(2026, 6, 30, 23, 50, tzinfo=UTC)


def test_times_are_said_in_the_zone_that_was_chosen() -> None:
    later = NIGHT + timedelta(minutes=5)
    assert clock(NIGHT, later) == "23:50:00"
    assert clock_zone(NIGHT, later + timedelta(hours=1)) == "30 Jun 23:50 UTC"
    with timezone.override(zone_of("Europe/Paris")):
        assert clock(NIGHT, later) == "01:50:00"
        assert clock_zone(NIGHT, later + timedelta(hours=1)) == "01:50:00 CEST"


@pytest.mark.parametrize("name", ["", "UTC", "Nowhere/City", "../../etc/passwd", "/etc/localtime", "a" * 200, "x\x00"])
def test_what_is_no_zone_means_utc(name: str) -> None:
    assert zone_of(name) is None


def test_the_axis_names_the_day_after_midnight() -> None:
    axis = _Axis(NIGHT, NIGHT + timedelta(minutes=30))
    assert [tick.text for tick in _ticks(axis, [])] == ["23:55", "1 Jul", "00:05", "00:10", "00:15"]
    with timezone.override(zone_of("Asia/Kathmandu")):  # +05:45
        assert [tick.text for tick in _ticks(axis, [])] == ["05:40", "05:45", "05:50", "05:55", "06:00"]


@pytest.mark.django_db
def test_the_page_of_a_run_follows_the_cookie_and_the_api_does_not(viewer: Client) -> None:
    run = make("retrying")
    assert run.deadline_at
    utc = viewer.get(f"/runs/{run.id}/").content.decode()
    assert 'data-zone="UTC"' in utc
    viewer.cookies["zone"] = "Asia/Kathmandu"
    local = viewer.get(f"/runs/{run.id}/").content.decode()
    assert 'data-zone="Asia/Kathmandu"' in local
    assert f"{run.submitted_at.astimezone(UTC):%H:%M:%S}</time>" in utc
    moment = run.submitted_at.astimezone(zone_of("Asia/Kathmandu"))
    assert f"{moment:%H:%M}" in local
    answer = viewer.get(f"/api/v1/runs/{run.id}", HTTP_X_REQUESTED_WITH="x")
    assert answer.status_code == 200
    assert answer.json()["submitted_at"].endswith("Z")
    viewer.cookies["zone"] = "Nowhere/City"
    assert 'data-zone="UTC"' in viewer.get(f"/runs/{run.id}/").content.decode()
    assert timezone.get_current_timezone_name() == "UTC", "the zone ends with the request"


@pytest.mark.django_db
def test_the_history_is_a_file_oldest_first_and_safe(sign_in: SignIn) -> None:
    spec = workflow_spec("small", 1, [step_spec("a", [])])
    build = Build(spec, subject="=cmd()")
    build.audit("submit", ago=40, actor="api", role="operator")
    row = build.row("a", StepState.WAITING, waiting_for=WaitingFor.RETRY, ready_at=build.at(-9), attempt=2,
                    started_at=build.at(20))  # fmt: skip
    build.failed_attempts(row, 2, ago=30, secs=1, error={"type": "E", "message": "=1+1 token=s3cr3t"})
    build.audit("note", ago=5, actor="@mara", role="support", reason="+seen password=s3cr3t")
    run = build.save()
    answer = sign_in("viewer").get(f"/runs/{run.id}/history/")
    assert answer["Content-Type"].startswith("text/csv")
    assert str(run.id) in answer["Content-Disposition"]
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    assert "s3cr3t" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    whats = [r["what"] for r in rows]
    assert whats[0] == "submit"
    assert whats.count("attempt failed") == 2
    assert whats[-1] == "note"
    assert [r["at"] for r in rows] == sorted(r["at"] for r in rows)
    assert rows[-1]["actor"] == "'@mara"
    assert rows[-1]["reason"].startswith("'+seen")
    assert f"/runs/{run.id}/history/" in sign_in("viewer").get(f"/runs/{run.id}/").content.decode()


@pytest.mark.django_db
def test_the_history_of_many_shards(viewer: Client) -> None:
    run = make("wide", total=400)
    answer = viewer.get(f"/runs/{run.id}/history/")
    lines = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert len(lines) > 400
