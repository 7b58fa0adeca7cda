"""Topics and locks on the page of queues, and changing a topic's limit."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.core.states import StepState
from orchestrator.models import AuditRecord, Run, Topic
from tests.dashboard.conftest import SignIn
from tests.harness.factory import Build, step_spec, workflow_spec

pytestmark = pytest.mark.django_db
SPEC = workflow_spec(
    "gpu-work", 1, [step_spec("render", [], topic={"name": "gpu", "limit": 2}), step_spec("store", ["render"])]
)


def rendering(subject: str, *, running: bool) -> Run:
    build = Build(SPEC, subject=subject)
    if running:
        build.running("render", ago=20, topic="gpu")
    else:
        build.row("render", StepState.WAITING, waiting_for="topic", waiting_name="gpu", topic="gpu")
    return build.save()


def storing(subject: str, *, running: bool, **run: Any) -> Run:
    build = Build(SPEC, subject=subject, **run)
    if running:
        build.running("store", ago=30, lock_name="video:9")
    else:
        build.row("store", StepState.WAITING, waiting_for="lock", waiting_name="video:9", lock_name="video:9")
    return build.save()


def card(client: Client, name: str) -> str:
    html = client.get("/queues/").content.decode()
    return html.split(f'aria-labelledby="{name}"')[1].split("</section>")[0]


def test_a_topic_says_its_limit_where_it_comes_from_and_who_holds(viewer: Client) -> None:
    holder = rendering("holder-1", running=True)
    rendering("holder-2", running=True)
    rendering("waiter", running=False)
    html = card(viewer, "topics-h")
    assert "from the definition" in html
    assert "Full" in html
    assert f"/runs/{holder.id}/?step=render" in html
    assert "holder-2" in html
    assert "waiter" not in html
    page = viewer.get("/queues/").content.decode()
    assert "1 step waits for the topic gpu, which is full: 2 of 2 in use." in page
    assert "Change limit" not in page


def test_a_lock_says_who_holds_it_who_waits_and_what_happens_on_a_conflict(viewer: Client) -> None:
    holder = storing("holder", running=True)
    waiters = [storing(f"waiter-{n}", running=False) for n in range(5)]
    html = card(viewer, "locks-h")
    assert "video:9" in html
    assert f"/runs/{holder.id}/?step=store" in html.split(str(waiters[0].id))[0]
    assert all(str(run.id) in html for run in waiters[:3])
    assert "and 2 more" in html
    assert "others wait" in html


def test_the_submissions_policy_counts_and_a_free_lock_says_so(viewer: Client) -> None:
    storing("waiter", running=False, on_lock_conflict="reject")
    html = card(viewer, "locks-h")
    assert "others are rejected" in html
    assert "nobody; who waits is next in turn" in html


def test_nothing_there_says_what_they_are_for(viewer: Client) -> None:
    html = viewer.get("/queues/").content.decode()
    assert "No topic" in html
    assert "No lock is held" in html


def test_few_queries_however_many(viewer: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(8):
        rendering(f"r-{number}", running=number < 4)
        storing(f"s-{number}", running=number < 1)
    viewer.get("/queues/")
    with django_assert_max_num_queries(13):
        viewer.get("/queues/")


def test_change_the_limit(sign_in: SignIn) -> None:
    rendering("holder", running=True)
    client = sign_in("operator")
    assert "Change limit" in card(client, "topics-h")
    given = {"name": "gpu", "limit": "0", "reason": "driver update", "back": "/queues/"}
    answer = client.post("/topics/limit/", given, follow=True)
    assert answer.redirect_chain == [("/queues/", 302)]
    assert b"The topic gpu is paused: its limit is 0." in answer.content
    assert (Topic.objects.get().limit, Topic.objects.get().set_by) == (0, "operator")
    html = card(client, "topics-h")
    assert "set by operator" in html
    assert "the definition says 2" in html
    client.post("/topics/limit/", given | {"limit": ""})
    assert Topic.objects.get().limit is None
    records = AuditRecord.objects.filter(action="topic").order_by("id")
    assert [(r.actor, r.role, r.reason, r.after["limit"]) for r in records] == [
        ("operator", "operator", "driver update", 0),
        ("operator", "operator", "driver update", None),
    ]
    assert records[1].before["limit"] == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [({"limit": "-1"}, "not a limit"), ({"limit": "4.5"}, "not a limit"), ({"limit": "٣"}, "not a limit"),
     ({"limit": "9999999999"}, "whole number"), ({"reason": " "}, "say why"), ({"name": "a b"}, "not a topic"),
     ({"name": "a\x00"}, "not a topic"), ({"name": ""}, "not a topic")],
)  # fmt: skip
def test_what_is_refused_is_told(sign_in: SignIn, change: dict[str, str], says: str) -> None:
    given = {"name": "gpu", "limit": "3", "reason": "x", **change}
    html = sign_in("operator").post("/topics/limit/", given, follow=True).content.decode()
    assert says in html.lower()
    assert "Nothing was changed." in html
    assert not Topic.objects.exists()


def test_who_may(sign_in: SignIn) -> None:
    given = {"name": "gpu", "limit": "3", "reason": "x"}
    for role in ("viewer", "support"):
        assert sign_in(role).post("/topics/limit/", given).status_code == 403
    assert sign_in("operator").get("/topics/limit/").status_code == 405
    assert not Topic.objects.exists()
