"""The sentence that opens the overview."""

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.queries.overview import overview
from dashboard.queries.overview_words import opening
from orchestrator.models import Beat, Run
from tests.harness.factory import lease, make

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def beat():
    now = timezone.now()
    return Beat.objects.create(name="dispatcher", holder="d-1", beat_at=now, expires_at=now + timedelta(seconds=30))


def text():
    return opening(overview()).text.replace("\u00a0", " ")


def test_nothing_yet():
    assert text().startswith("No run has been submitted yet.")


def test_quiet():
    make("done")
    assert text() == "All is quiet. No run is under way; the last one ended 40 s ago."


def test_well():
    make("approving")
    assert text() == "All is well. 1 run is under way; none is late and nothing waits in the dead letters."


def test_late():
    make("overdue")
    make("overdue")
    assert text().startswith("2 runs are overdue, the worst by 3 m.")


def test_dead_letters_of_one_cause():
    make("failed")
    make("failed")
    assert "2 failures wait in the dead letters, all from one cause: OSError at 480p of transcode." in text()


def test_work_that_no_worker_takes():
    make("queued")
    assert "No worker serves the queue media-light, where 1 step wait" in text()
    lease("w", ["media-light"])
    assert "No worker" not in text()


def test_a_silent_dispatcher_comes_first(beat):
    Beat.objects.update(beat_at=timezone.now() - timedelta(minutes=3))
    make("overdue")
    told = opening(overview())
    assert told.text.replace("\u00a0", " ").startswith("The dispatcher has not been seen for 3 m")
    assert told.mark == "down"


def test_no_dispatcher_at_all():
    Beat.objects.all().delete()
    assert text().startswith("No run has been submitted yet."), "nothing to do, nothing to miss"
    make("approving")
    assert text().startswith("No dispatcher has ever been seen")


def test_the_list_begins_with_the_latest():
    make("approving", subject="calm")
    make("overdue", subject="late")
    later = make("overdue", subject="later")
    Run.objects.filter(pk=later.pk).update(deadline_at=timezone.now() - timedelta(hours=5))
    page = overview()
    assert [row.run.subject_id for row in page.rows] == ["later", "late", "calm"]
    assert [row.mark for row in page.rows] == ["overdue", "overdue", ""]


def test_tiles(viewer):
    for stage in ("retrying", "approving", "compensating", "queued", "overdue"):
        make(stage)
    counts = overview().counts
    assert (counts.retrying, counts.waiting, counts.compensating, counts.overdue) == (1, 1, 1, 1)
    assert counts.waits == {"approval": 1}
    assert counts.running == 4
