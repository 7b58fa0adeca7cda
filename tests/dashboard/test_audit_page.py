"""The audit trail's filters, and the last hours to hand over."""

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.queries.handover import handover
from orchestrator.core.actor import Actor
from orchestrator.core.metric_names import RUN_DURATION_BUCKET
from orchestrator.engine import operate
from orchestrator.models import AuditRecord, DeadLetter, Pause, RollupHour, Run, Topic
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def trail():
    run = make("failed", subject="vid-1")
    AuditRecord.objects.all().delete()
    records = [
        {"actor": "olga", "role": "operator", "action": "cancel", "run": run, "reason": "wrong file"},
        {"actor": "sam", "role": "support", "action": "note", "run": make("done", subject="vid-2"), "reason": "called"},
        {"actor": "olga", "role": "operator", "action": "pause", "subject": "queue media", "reason": "disk is full"},
        {"actor": "uploads-api", "role": "operator", "action": "submit", "run": run, "reason": "bulk import"},
        {"actor": "engine", "action": "state", "run": run, "reason": "by itself"},
    ]
    AuditRecord.objects.filter(action="submit").delete()
    for record in records:
        AuditRecord.objects.create(**record)
    return run


def reasons(client, query):
    html = client.get(f"/audit/{query}").content.decode()
    told = ("wrong file", "called", "disk is full", "bulk import", "by itself")
    return [text for text in told if text in html]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["wrong file", "called", "disk is full"]),
        ("?who=all", ["wrong file", "called", "disk is full", "bulk import", "by itself"]),
        ("?action=submit", ["bulk import"]),
        ("?actor=olga", ["wrong file", "disk is full"]),
        ("?actor=olga&action=pause", ["disk is full"]),
        ("?subject=vid-1", ["wrong file"]),
        ("?subject=+vid-1+&who=all", ["wrong file", "bulk import", "by itself"]),
        ("?subject=queue+media", ["disk is full"]),
        ("?since=1h", ["wrong file", "called", "disk is full"]),
        ("?until=2020-01-01", []),
        ("?actor=nobody", []),
    ],
)
def test_filters(viewer, trail, query, found):
    assert reasons(viewer, query) == found


def test_a_run_is_found_by_its_id(viewer, trail):
    assert reasons(viewer, f"?subject={trail.pk}") == ["wrong file"]


@pytest.mark.parametrize("query", ["?since=never", "?actor=%00", "?subject=%00", "?cursor=x", "?until=9999999999d"])
def test_a_bad_filter_says_what_to_fix(viewer, trail, query):
    answer = viewer.get(f"/audit/{query}")
    assert answer.status_code == 200
    assert 'role="alert"' in answer.content.decode()


def test_links_to_all_keep_the_filters(viewer, trail):
    html = viewer.get("/audit/?actor=olga").content.decode()
    assert 'href="?actor=olga&amp;who=all"' in html
    assert 'href="/audit/export/?actor=olga"' in html


def test_nothing_to_hand_over(viewer):
    page = handover()
    assert page.sentence == (
        "In the last 8 hours no run failed; no failure waits in the dead letters. "
        "Nobody acted; nothing is paused or held."
    )
    html = viewer.get("/audit/handover/").content.decode()
    for title in ("Nothing broke", "Nothing stands still", "Nobody acted"):
        assert title in html


def test_what_broke_who_acted_and_what_stands_still(viewer, trail):
    now = timezone.now()
    old = make("failed", subject="old")
    DeadLetter.objects.filter(run=old).update(fingerprint="old", last_at=now - timedelta(hours=30), step="other")
    labels = {"workflow": "video-upload", "state": "failed", "le": "60.0"}
    hour = now.replace(minute=0, second=0, microsecond=0)
    RollupHour.objects.create(metric=RUN_DURATION_BUCKET, labels=labels, hour=hour, value=5)
    RollupHour.objects.create(metric=RUN_DURATION_BUCKET, labels=labels, hour=hour - timedelta(hours=20), value=7)
    held = make("compensating", subject="held-one")
    Run.objects.filter(pk=held.pk).update(compensation="pending", hold_until=now + timedelta(hours=1))
    make("partial", subject="half-one")
    Pause.objects.create(
        kind="queue", name="media", reason="password=hunter2", actor="olga", until=now + timedelta(hours=1)
    )
    Topic.objects.create(name="gpu", limit=0, set_by="olga")
    operate.note_incident([DeadLetter.objects.get(run=trail).fingerprint], Actor("sam", "support"), owner="media team")
    page = handover("8")
    assert page.failed == [("video-upload", 5)]
    assert [person.name for person in page.people] == ["olga", "sam"]
    assert page.people[0].did == "1 × pause and 1 × cancel"
    assert "old" not in [fingerprint for one in page.broke for fingerprint in one.fingerprints]
    assert sorted(row.run.subject_id for row in page.runs) == ["half-one", "held-one"]
    html = viewer.get("/audit/handover/").content.decode()
    for text in ("Queue media is paused", "Topic gpu is closed", "media team looks after it", "5 runs of video-upload"):
        assert text in html
    assert "hunter2" not in html
    assert sum(count for _, count in handover("24").failed) == 12


@pytest.mark.parametrize("hours", ["", "8", "24", "9", "x", "-8", "9" * 40])
def test_any_number_of_hours_answers(viewer, hours):
    assert viewer.get("/audit/handover/", {"hours": hours}).status_code == 200
