"""The notice of pauses on every page, and pausing from the pages of queues and workflows."""

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator.models import AuditRecord, Pause
from tests.harness.factory import make


@pytest.fixture
def paused(db):
    make("queued")
    until = timezone.now() + timedelta(hours=1)
    for kind, name in (("queue", "media-light"), ("workflow", "video-upload")):
        Pause.objects.create(kind=kind, name=name, reason=f"{name} token=s3cr3t", actor="mara", until=until)


PAGES = ["/", "/runs/", "/queues/", "/workflows/", "/workflows/video-upload/", "/schedules/", "/health/", "/audit/",
         "/dead-letters/", "/overdue/", "/where/"]  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}])
def test_every_page_and_its_live_region_say_what_is_paused(viewer, paused, address, headers):
    html = viewer.get(address, headers=headers).content.decode()
    assert html.count('class="alert s-late paused"') == 1
    assert "Queue media-light</a> is paused by mara until" in html
    assert "Workflow video-upload</a> is paused by mara until" in html
    assert "s3cr3t" not in html.split('aria-label="Paused"')[1].split("</section>")[0]


def test_a_pause_that_has_ended_is_not_shown(viewer, paused):
    Pause.objects.update(until=timezone.now())
    assert "is paused by" not in viewer.get("/").content.decode()


def test_buttons_are_for_operators(viewer, sign_in, paused):
    for address in ("/queues/", "/workflows/video-upload/"):
        assert "Resume…" not in viewer.get(address).content.decode()
        assert "Resume…" in sign_in("operator").get(address).content.decode()


@pytest.mark.parametrize(
    ("kind", "name", "home"),
    [("queue", "media-light", "/queues/"), ("workflow", "video-upload", "/workflows/video-upload/")],
)
def test_pause_and_resume(sign_in, kind, name, home):
    make("queued")
    client = sign_in("operator")
    given = {"name": name, "for": "4h", "reason": "new disks", "back": home}
    answer = client.post(f"/pause/{kind}/", given, follow=True)
    assert answer.redirect_chain == [(home, 302)]
    assert f"The {kind} {name} is paused." in answer.content.decode()
    pause = Pause.objects.get()
    assert (pause.kind, pause.name, pause.actor, pause.reason) == (kind, name, "operator", "new disks")
    assert timedelta(hours=3.9) < pause.until - timezone.now() <= timedelta(hours=4)
    client.post(f"/resume/{kind}/", given)
    assert Pause.objects.get().until <= timezone.now()
    assert "is not paused" in client.post(f"/resume/{kind}/", given, follow=True).content.decode()
    assert list(AuditRecord.objects.filter(run=None).order_by("id").values_list("action", "role")) == [
        ("pause", "operator"),
        ("resume", "operator"),
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"for": "soon"}, "is not a duration"),
        ({"for": "9999d"}, "a pause takes"),
        ({"reason": ""}, "say why"),
        ({"name": "nope"}, "there is no queue"),
        ({"name": "a\x00"}, "is not the name"),
        ({"back": "https://evil.example/"}, "is paused"),
    ],
)
def test_what_is_refused_is_told(sign_in, change, says):
    make("queued")
    given = {"name": "media-light", "for": "1h", "reason": "x", "back": "/queues/", **change}
    answer = sign_in("operator").post("/pause/queue/", given, follow=True)
    assert answer.redirect_chain == [("/queues/", 302)]
    assert says in answer.content.decode()


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_who_may(sign_in, verb):
    given = {"name": "default", "for": "1h", "reason": "x"}
    assert sign_in("support").post(f"/{verb}/queue/", given).status_code == 403
    assert sign_in("operator").get(f"/{verb}/queue/").status_code == 405
    assert sign_in("operator").post(f"/{verb}/topic/", given).status_code == 404
    assert not Pause.objects.exists()
