"""Where is it, workflows, queues, health, audit, overdue."""

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator.models import AuditRecord, Lease, Pause, Run
from tests.harness.factory import lease, make


def page(client, address):
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode().replace("\u00a0", " ")


def test_where_answers_by_subject_and_by_id(viewer):
    run = make("retrying", subject="vid-1")
    for q in ("vid-1", str(run.id), run.id.hex, " vid-1 "):
        html = page(viewer, f"/where/?q={q}")
        assert "2 of 3 shards" in html
        assert "Converting your video" in html
        assert f"/runs/{run.id}/" in html


def test_where_offers_what_looks_like_it(viewer):
    make("done", subject="order-48213")
    html = page(viewer, "/where/?q=48213")
    assert "No exact match" in html
    assert "order-48213" in html


@pytest.mark.parametrize("q", ["%00", "x" * 600, "nothing", "00000000-0000-0000-0000-000000000000", "%ff"])
def test_where_always_says_something(viewer, q):
    html = page(viewer, f"/where/?q={q}")
    assert "Never arrived" in html or 'role="alert"' in html


def test_a_workflow_shows_its_steps_and_versions(viewer):
    make("mid_fan_out")
    html = page(viewer, "/workflows/video-upload/")
    assert "fan-out, 3 shards" in html
    assert "approval by editors" in html
    assert "undone by" in html
    assert "then runs purge_cdn, and ends failed" in html


@pytest.mark.parametrize("address", ["/workflows/nope/", "/workflows/video-upload/?version=9", "/workflows/a%00/"])
def test_an_unknown_workflow_is_not_found(viewer, address):
    make("done")
    assert viewer.get(address).status_code == 404


def test_queues_name_what_no_worker_serves(viewer):
    make("queued")
    html = page(viewer, "/queues/")
    assert "No worker serves media-light, where 1 step waits." in html
    lease("w-1", ["media-light"])
    Pause.objects.create(
        kind="queue", name="media-light", reason="new disks", actor="mara", until=timezone.now() + timedelta(hours=1)
    )
    html = page(viewer, "/queues/")
    assert "w-1" in html
    assert "new disks" in html


def test_a_lost_worker_comes_first(viewer):
    make("mid_fan_out")
    lease("a-idle")
    Lease.objects.filter(name="media-heavy-1").update(expires_at=timezone.now() - timedelta(minutes=2))
    html = page(viewer, "/queues/").split("worker processes")[1]
    assert html.index("Lost") < html.index("Idle")


def test_health_tells_of_a_missing_dispatcher(viewer):
    html = page(viewer, "/health/")
    assert "Never seen" in html
    assert "PostgreSQL" in html


def test_audit_is_of_people_unless_all_is_asked(viewer):
    run = make("cancelled")
    html = page(viewer, "/audit/")
    assert "customer withdrew the upload" in html
    assert "mara.lindt" in html
    AuditRecord.objects.create(
        run=run, action="state", before={"state": "running"}, after={"state": "failed", "cause": "worker_lost"}
    )
    assert "running → failed, worker lost" not in page(viewer, "/audit/")
    assert "running → failed, worker lost" in page(viewer, "/audit/?who=all")


def test_audit_pages(viewer):
    AuditRecord.objects.bulk_create(AuditRecord(action="note", actor=f"a{n:03d}") for n in range(60))
    html = page(viewer, "/audit/")
    assert "a059" in html
    assert "a009" not in html
    cursor = html.split("cursor=")[1].split('"')[0]
    assert "a009" in page(viewer, f"/audit/?cursor={cursor}")
    assert 'role="alert"' in page(viewer, "/audit/?cursor=%00")


def test_overdue_has_three_lists(viewer):
    assert "No run is overdue" in page(viewer, "/overdue/")
    make("overdue", subject="late")
    ended = make("done", subject="missed")
    Run.objects.filter(pk=ended.pk).update(deadline_at=timezone.now() - timedelta(minutes=5))
    html = page(viewer, "/overdue/")
    assert "1 run is past the deadline" in html
    assert "missed" in html.split("Missed in the last 24 hours")[1]
