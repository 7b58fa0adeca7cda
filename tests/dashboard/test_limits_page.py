"""Topics and locks on the page of queues: limits and their origin, who holds, who waits."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.core.states import StepState
from orchestrator.models import Run
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
    assert "The definition" in html
    assert "Full" in html
    assert f"/runs/{holder.id}/?step=render" in html
    assert "holder-2" in html
    assert "waiter" not in html
    page = viewer.get("/queues/").content.decode()
    assert "1 step waits for the topic gpu, which is full: 2 of 2 in use." in page
    assert "Set limit" not in page


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
