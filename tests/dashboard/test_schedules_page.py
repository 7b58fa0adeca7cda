"""The page of schedules: what it says, and its verbs."""

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator.models import AuditRecord, Pause, Run, Schedule
from tests.harness.factory import definition, make


def schedule(**values):
    made = {"workflow": "video-upload", "cron": "0 3 * * *", "timezone": "Europe/Paris", "subject": "nightly-{date}"}
    return Schedule.objects.create(**{**made, "next_at": timezone.now() + timedelta(hours=2), **values})


def page(client):
    answer = client.get("/schedules/")
    assert answer.status_code == 200
    return answer.content.decode().replace("\u00a0", " ")


def test_none(viewer):
    html = page(viewer)
    assert "No workflow has a schedule" in html
    assert 'data-go="s"' in html


def test_a_schedule_with_its_last_run_and_what_did_not_start(viewer):
    run = make("failed", subject="nightly-2026-01-01")
    schedule(last_run=run, last_at=timezone.now(), missed=4, missed_at=timezone.now(), skipped=1)
    html = page(viewer)
    for text in ("0 3 * * *", "Europe/Paris", "nightly-2026-01-01", "Failed", "4 ticks missed", "1 skipped", "there"):
        assert text in html
    assert "in 1 h 59 m" in html or "2 h" in html
    assert "Run now" not in html


def test_late_and_paused_come_first(viewer):
    schedule(workflow="fine")
    schedule(workflow="late-one", next_at=timezone.now() - timedelta(minutes=5))
    schedule(workflow="held-one", paused=True, paused_by="ada", paused_reason="password=hunter2 new disks")
    html = page(viewer)
    assert "The tick of late-one came" in html
    assert html.index("late-one") < html.index("held-one") < html.index(">fine<")
    assert "Paused by ada" in html
    assert "hunter2" not in html


def test_a_paused_workflow_is_told(viewer):
    schedule()
    until = timezone.now() + timedelta(hours=1)
    Pause.objects.create(kind="workflow", name="video-upload", reason="r", actor="a", until=until)
    assert "When the workflow is resumed" in page(viewer)


def test_verbs(sign_in):
    definition()
    row = schedule()
    admin = sign_in("admin")
    assert "Run now" in page(admin)
    given = {"workflow": "video-upload", "reason": "new disks", "back": "/schedules/"}
    answer = admin.post("/schedules/pause/", given, follow=True)
    assert "The schedule of video-upload is paused." in answer.content.decode()
    row.refresh_from_db()
    assert (row.paused, row.paused_by) == (True, "admin")
    answer = admin.post("/schedules/pause/", given, follow=True)
    assert "paused already" in answer.content.decode()
    admin.post("/schedules/resume/", given)
    admin.post("/schedules/run/", given)
    row.refresh_from_db()
    assert row.last_run == Run.objects.get() and not row.paused
    people = AuditRecord.objects.filter(subject="schedule video-upload").order_by("id")
    assert [(r.action, r.role, r.reason) for r in people] == [
        (action, "admin", "new disks") for action in ("pause", "resume", "run_now")
    ]


@pytest.mark.parametrize("verb", ["pause", "resume", "run"])
def test_only_an_admin_may_and_only_by_post_with_a_reason(sign_in, verb):
    definition()
    schedule()
    given = {"workflow": "video-upload", "reason": "x"}
    assert sign_in("operator").post(f"/schedules/{verb}/", given).status_code == 403
    admin = sign_in("admin")
    assert admin.get(f"/schedules/{verb}/").status_code == 405
    said = admin.post(f"/schedules/{verb}/", {**given, "reason": " "}, follow=True).content.decode()
    assert "say why" in said
    assert (
        "has no schedule"
        in admin.post(f"/schedules/{verb}/", {**given, "workflow": "no"}, follow=True).content.decode()
    )
    assert not AuditRecord.objects.exists() and not Run.objects.exists()
    csrf = sign_in("admin", enforce_csrf_checks=True)
    assert csrf.post(f"/schedules/{verb}/", given).status_code == 403
