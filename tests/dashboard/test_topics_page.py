"""Setting a topic's limit on the page of queues: who may, what is refused, and what is kept of it."""

from __future__ import annotations

import pytest

from orchestrator.models import AuditRecord, Topic
from tests.harness.factory import definition, step_spec, workflow_spec

pytestmark = pytest.mark.django_db
GIVEN = {"name": "gpu", "limit": "2", "reason": "one card broke", "back": "/queues/"}


def test_setting_a_limit(sign_in, viewer):
    Topic.objects.create(name="gpu", limit=0, set_by="mara")
    html = viewer.get("/queues/").content.decode()
    assert "Set by mara" in html and "Paused" in html and "Set limit" not in html
    client = sign_in("operator")
    assert "Set limit…" in client.get("/queues/").content.decode()
    answer = client.post("/topics/limit/", GIVEN, follow=True)
    assert answer.redirect_chain == [("/queues/", 302)]
    assert "The topic gpu takes 2 at once from now on." in answer.content.decode()
    assert Topic.objects.values_list("limit", "set_by").get(pk="gpu") == (2, "operator")
    record = AuditRecord.objects.get(action="topic")
    assert (record.reason, record.after["limit"], record.role) == ("one card broke", 2, "operator")
    client.post("/topics/limit/", GIVEN | {"limit": ""})
    assert Topic.objects.get(pk="gpu").limit is None


def test_going_back_to_the_definitions_limit(sign_in):
    definition(workflow_spec("gpu-work", 1, [step_spec("render", [], topic={"name": "gpu", "limit": 3})]))
    client = sign_in("operator")
    assert "Back to" not in client.get("/queues/").content.decode()
    client.post("/topics/limit/", GIVEN)
    assert "Back to 3, as the definition says" in client.get("/queues/").content.decode()
    answer = client.post("/topics/limit/", GIVEN | {"default": "1"}, follow=True)
    assert "goes by what the settings or its definition say again" in answer.content.decode()
    assert Topic.objects.values_list("limit", "set_by").get(pk="gpu") == (3, "")
    answer = client.post("/topics/limit/", GIVEN | {"default": "1", "name": "nosuch"}, follow=True)
    assert "There is no topic" in answer.content.decode() or "there is no topic" in answer.content.decode()
    assert not Topic.objects.filter(pk="nosuch").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [({"limit": "-1"}, "is no limit"), ({"limit": "many"}, "is no limit"), ({"limit": "9999999999"}, "whole number"),
     ({"name": ""}, "is not a topic"), ({"name": "a b\x00"}, "is not a topic"), ({"reason": " "}, "say why"),
     ({"back": "https://evil.example/"}, "takes 2 at once")],
)  # fmt: skip
def test_what_is_refused_is_told(sign_in, change, says):
    answer = sign_in("operator").post("/topics/limit/", GIVEN | change, follow=True)
    assert answer.redirect_chain == [("/queues/", 302)] and says in answer.content.decode()
    assert Topic.objects.exists() == ("back" in change)


def test_who_may(sign_in):
    assert sign_in("support").post("/topics/limit/", GIVEN).status_code == 403
    assert sign_in("operator").get("/topics/limit/").status_code == 405
    assert not Topic.objects.exists()
