"""The page of a version: what holds it, and taking it out of use."""

from __future__ import annotations

import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, NotAllowed, NotFound
from orchestrator.engine import operate
from orchestrator.engine.db import caller_connection
from orchestrator.engine.plans import latest_definition
from orchestrator.models import AuditRecord, Definition, Run
from tests.harness.factory import make, video_spec

pytestmark = pytest.mark.django_db
ADMIN = Actor("root", "admin")
WHY = {"reason": "the code goes", "back": "/workflows/video-upload/?version=3"}


@pytest.fixture
def newer():
    """Version 3 with a live run, version 4 without."""
    run = make("queued")
    old = Definition.objects.get(workflow="video-upload")
    spec = old.spec | {"version": 4}
    Definition.objects.create(workflow="video-upload", version=4, content_hash="4", spec=spec, source="", origin="x")
    return run


def retired(version=3):
    return Definition.objects.get(workflow="video-upload", version=version).retired_at is not None


def test_a_version_in_use_says_who_holds_it_and_is_not_retired(sign_in, newer):
    html = sign_in("admin").get("/workflows/video-upload/?version=3").content.decode()
    assert "1 live run holds it" in html and "version=3&amp;state=running,compensating" in html
    assert "/3/retire/" not in html
    answer = sign_in("admin").post("/workflows/video-upload/3/retire/", WHY, follow=True)
    assert f"is in use by 1 live run, such as {newer.pk}" in answer.content.decode() and not retired()


def test_a_version_that_nothing_holds_is_retired_and_restored(sign_in, newer):
    Run.objects.update(state="done", finished_at=newer.submitted_at, pending=0)
    admin = sign_in("admin")
    assert "/3/retire/" in admin.get("/workflows/video-upload/?version=3").content.decode()
    assert "/3/retire/" not in sign_in("operator").get("/workflows/video-upload/?version=3").content.decode()
    answer = admin.post("/workflows/video-upload/3/retire/", WHY, follow=True)
    assert "video-upload v3 is retired: no new runs start on it." in answer.content.decode() and retired()
    record = AuditRecord.objects.get(action="retire")
    assert (record.subject, record.actor, record.reason) == ("video-upload v3", "admin", "the code goes")
    with pytest.raises(Conflict, match="version 3 of video-upload is retired"):
        latest_definition(caller_connection(), "video-upload", 3)
    assert "/3/restore/" in admin.get("/workflows/video-upload/?version=3").content.decode()
    admin.post("/workflows/video-upload/3/restore/", WHY)
    assert not retired()


def test_what_is_refused(newer):
    with pytest.raises(NotFound):
        operate.retire_version("video-upload", 9, ADMIN, "x")
    with pytest.raises(NotAllowed):
        operate.retire_version("video-upload", 4, Actor("olga", "operator"), "x")
    with pytest.raises(Conflict, match="is not retired"):
        operate.restore_version("video-upload", 4, ADMIN, "x")
    operate.retire_version("video-upload", 4, ADMIN, "x")
    with pytest.raises(Conflict, match="retired already"):
        operate.retire_version("video-upload", 4, ADMIN, "x")


def test_the_last_version_that_others_start_as_a_child_stays(newer):
    spec = video_spec()
    spec["workflow"], spec["version"] = "parent", 1
    spec["steps"][0]["workflow"] = "video-upload"
    Definition.objects.create(workflow="parent", version=1, content_hash="p", spec=spec, source="", origin="x")
    Run.objects.update(state="done", finished_at=newer.submitted_at, pending=0)
    operate.retire_version("video-upload", 3, ADMIN, "x")
    with pytest.raises(Conflict, match="parent start it as a child run"):
        operate.retire_version("video-upload", 4, ADMIN, "x")


def test_who_may(sign_in, newer):
    assert sign_in("operator").post("/workflows/video-upload/4/retire/", WHY).status_code == 403
    assert sign_in("admin").get("/workflows/video-upload/4/retire/").status_code == 405
    assert sign_in("admin").post("/workflows/nope/4/retire/", WHY, follow=True).status_code == 200
    assert not retired(4)
