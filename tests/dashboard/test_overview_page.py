"""The sentence that opens the overview."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.queries.overview import overview
from dashboard.queries.overview_words import opening
from orchestrator.models import Beat, DeadLetter, Run
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
    assert re.match(r"2 runs are overdue, the worst by 3 m( \d+ s)?\.", text())


def test_dead_letters_of_one_cause():
    make("failed")
    make("failed")
    assert "2 failures wait in the dead letters, all from one cause: OSError at 480p of transcode." in text()


def test_dead_letters_of_several_causes():
    for kind in ("OSError", "Timeout", "KeyError", "ValueError"):
        run = make("failed")
        DeadLetter.objects.filter(run=run).update(fingerprint=kind, error={"type": kind, "message": "x"})
    told = text()
    assert "4 failures wait in the dead letters: 1 × " in told
    assert told.count("1 × ") == 3
    assert "and 1 of other causes." in told


def test_an_incomplete_undo_and_a_held_one_are_told_first():
    make("partial")
    run = make("compensating")
    until = timezone.now() + timedelta(minutes=20, seconds=30)
    Run.objects.filter(pk=run.pk).update(compensation="pending", hold_until=until)
    assert text().startswith("1 run was not undone completely. 1 failed run is held; it is undone in 20 m")
    page = overview()
    assert (page.counts.partial, page.counts.held, page.counts.held_until) == (1, 1, until)
    assert opening(page).mark == "down"


def test_what_ended_late_is_counted_for_a_day():
    for ago in (2, 30):
        run = make("done")
        ended = timezone.now() - timedelta(hours=ago)
        Run.objects.filter(pk=run.pk).update(finished_at=ended, deadline_at=ended - timedelta(minutes=1))
    make("done")
    assert overview().counts.missed == 1


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


def test_the_tiles_lead_to_what_they_count(viewer):
    partial = make("partial", subject="half-undone")
    make("failed", subject="another")
    html = viewer.get("/").content.decode()
    assert html.index("Partial undo") < html.index(">Running<")
    listed = viewer.get("/runs/?compensation=partial").content.decode()
    assert str(partial.pk) in listed
    assert "another" not in listed
    assert "is unknown" in viewer.get("/runs/?compensation=half").content.decode()


def test_tiles(viewer):
    for stage in ("retrying", "approving", "compensating", "queued", "overdue"):
        make(stage)
    counts = overview().counts
    assert (counts.retrying, counts.waiting, counts.compensating, counts.overdue) == (1, 1, 1, 1)
    assert counts.waits == {"approval": 1}
    assert counts.running == 4
