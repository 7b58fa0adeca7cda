"""How long the steps of a workflow take, one version beside another."""

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.queries.step_times import compared
from orchestrator.engine import step_times
from orchestrator.engine.find import TooBroad
from orchestrator.engine.step_times import times
from orchestrator.models import Definition, Run, Step
from tests.harness.factory import definition, make

pytestmark = pytest.mark.django_db
STEPS = ["probe", "transcode", "notify"]


def done(version, seconds, count=5):
    """Ended runs whose transcode took so many seconds from its first shard's start to its last one's end."""
    made = definition()
    Definition.objects.get_or_create(
        workflow=made.workflow, version=version, defaults={"content_hash": str(version), "spec": made.spec}
    )
    for _ in range(count):
        run, at = make("done"), timezone.now()
        Run.objects.filter(pk=run.pk).update(version=version, submitted_at=at - timedelta(seconds=seconds + 60))
        Run.objects.filter(pk=run.pk).update(finished_at=at)
        begun = at - timedelta(seconds=seconds)
        Step.objects.filter(run=run, step="transcode").update(first_started_at=begun, finished_at=at)


def test_versions_beside_one_another():
    done(3, 100)
    done(4, 250)
    found = compared("video-upload", 4, [4, 3, 2], STEPS)
    assert found.versions == [4, 3], "nothing is known of version 2"
    probe, transcode, _ = found.rows
    assert [round(cell.p50) for cell in transcode.cells] == [250, 100]
    assert (transcode.is_slower, transcode.word) == (True, "2.5 times as long as on v3")
    assert (probe.is_slower, probe.word) == (False, "as on v3")
    assert [round(cell.p95) for cell in found.whole.cells] == [310, 160]
    assert "slower than on an earlier version: transcode" in found.sentence
    back = compared("video-upload", 3, [4, 3], STEPS)
    assert back.rows[1].word == "faster than on v4"


def test_too_little_history_is_said(viewer):
    done(3, 100, count=4)
    assert times("video-upload", [3]) == {}
    assert "Not enough history" in viewer.get("/workflows/video-upload/").content.decode()


def test_looking_that_takes_too_long_is_said(viewer, monkeypatch):
    def give_up(*_):
        raise TooBroad("too long")

    monkeypatch.setattr(step_times, "patiently", give_up)
    make("done")
    assert "Reading the latest runs took too long" in viewer.get("/workflows/video-upload/").content.decode()


def test_the_page_shows_them(viewer):
    done(3, 100)
    html = viewer.get("/workflows/video-upload/?version=3").content.decode()
    table = html.split('aria-label="Time of each step by version"')[1].split("</table>")[0]
    assert "Whole run" in table
    assert "100\u00a0s" in table
    assert table.index(">probe<") < table.index(">transcode<") < table.index(">notify<")
