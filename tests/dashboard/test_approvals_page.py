"""Approvals: what is listed for whom, and answering from the list and from the step's panel."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from dashboard.queries.approvals import glance
from orchestrator.models import AuditRecord, Run, Step
from tests.dashboard.conftest import SignIn
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor(sign_in: SignIn) -> Client:
    """An operator who is in the group that is asked."""
    client = sign_in("operator")
    User.objects.get(username="operator").groups.add(Group.objects.get_or_create(name="editors")[0])
    return client


def asked(run: Run) -> Step:
    return Step.objects.get(run=run, step="approve")


def text(client: Client, path: str = "/approvals/", **headers: Any) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_empty_list_says_so(viewer: Client) -> None:
    html = text(viewer)
    assert "No run waits for a decision." in html
    assert "Nothing to decide" in html


def test_it_says_who_since_when_until_when_and_what_helps_to_decide(viewer: Client) -> None:
    run = make("approving", input={"title": "Holiday clip", "token": "s3cr3t-X", "parts": [{"a": 1}]})
    html = text(viewer)
    assert f"/runs/{run.id}/?step=approve" in html
    assert "<b>editors</b> or an admin" in html
    assert "the run misses its deadline" in html, "which comes first"
    assert "Holiday clip" in html
    assert "thumbs/sprite.jpg" in html, "the output of the step before"
    assert "s3cr3t-X" not in html
    assert "/steps/" not in html, "no button for those who may only look"


def test_the_sidebar_counts_them(viewer: Client) -> None:
    for number in range(3):
        make("approving", subject=f"s-{number}")
    side = text(viewer, "/overdue/").split('aria-label="Main"')[1].split("</nav>")[0]
    entry = side.split('href="/approvals/"')[1].split("</a>")[0]
    assert ">3</span>" in entry


def test_buttons_are_for_the_group_and_for_admins(sign_in: SignIn, editor: Client) -> None:
    path = f"/steps/{asked(make('approving')).pk}/approve/"
    assert path in text(editor)
    assert path in text(sign_in("admin"))
    assert path not in text(sign_in("support"))
    User.objects.get(username="operator").groups.set(Group.objects.filter(name="operator"))
    html = text(editor)
    assert path not in html
    assert "only editors or an admin" in html


def test_approve_and_reject_go_on_and_leave_a_record(editor: Client) -> None:
    good, bad = make("approving", subject="good"), make("approving", subject="bad")
    answer = editor.post(f"/steps/{asked(good).pk}/approve/", {"reason": "looks fine\x00"}, follow=True)
    assert answer.redirect_chain == [("/approvals/", 302)]
    assert b"Approved. The run goes on." in answer.content
    editor.post(f"/steps/{asked(bad).pk}/reject/", {"reason": "wrong film"})
    assert asked(good).state == "done"
    assert asked(bad).state == "failed"
    assert Step.objects.get(run=good, step="notify").state == "queued"
    records = AuditRecord.objects.filter(action__in=["approve", "reject"]).order_by("id")
    assert [(r.action, r.actor, r.role, r.reason, r.run_id) for r in records] == [
        ("approve", "operator", "operator", "looks fine\ufffd", good.id),
        ("reject", "operator", "operator", "wrong film", bad.id),
    ]


def test_a_stale_page_changes_nothing(editor: Client) -> None:
    run = make("approving")
    path = f"/steps/{asked(run).pk}"
    editor.post(f"{path}/approve/", {"reason": "yes"})
    before = Run.objects.get().updated_at
    for verb in ("approve", "reject", "skip"):
        html = editor.post(f"{path}/{verb}/", {"reason": "again"}, follow=True).content.decode()
        assert "Nothing was changed." in html
    assert Run.objects.get().updated_at == before
    assert AuditRecord.objects.exclude(action="submit").count() == 1


@pytest.mark.parametrize("verb", ["approve", "reject", "skip"])
def test_who_may_and_what_is_refused(verb: str, sign_in: SignIn, editor: Client) -> None:
    run = make("approving")
    path = f"/steps/{asked(run).pk}/{verb}/"
    assert sign_in("support").post(path, {"reason": "x"}).status_code == 403
    assert editor.get(path).status_code == 405
    assert "say why" in editor.post(path, {"reason": " "}, follow=True).content.decode().lower()
    assert (
        "there is no step"
        in editor.post(f"/steps/{10**17}/{verb}/", {"reason": "x"}, follow=True).content.decode().lower()
    )
    assert asked(run).state == "waiting"


def test_the_page_of_the_run_offers_it_to_those_who_may(editor: Client) -> None:
    run = make("approving")
    offer = f"/approvals/?run={run.id}"
    assert offer in text(editor, f"/runs/{run.id}/")
    User.objects.get(username="operator").groups.remove(Group.objects.get(name="editors"))
    assert offer not in text(editor, f"/runs/{run.id}/")


def test_an_operator_outside_the_group_is_refused(sign_in: SignIn) -> None:
    run = make("approving")
    answer = sign_in("operator").post(f"/steps/{asked(run).pk}/approve/", {"reason": "x"})
    assert answer.status_code == 403
    assert b"is not in the group editors" in answer.content
    assert asked(run).state == "waiting"


def test_the_panel_of_the_step_offers_the_same(editor: Client, viewer: Client) -> None:
    run = make("approving")
    path = f"/runs/{run.id}/?step=approve"
    html = text(editor, path)
    for verb in ("approve", "reject", "skip"):
        assert f"/steps/{asked(run).pk}/{verb}/" in html
    assert f'name="back" value="{path}"' in html
    assert "/steps/" not in text(viewer, path)
    assert "/steps/" not in text(editor, f"/runs/{run.id}/?step=probe"), "it is done"


def test_a_queued_shard_can_be_skipped_from_its_panel(sign_in: SignIn) -> None:
    run, client = make("mid_fan_out"), sign_in("operator")
    shard = Step.objects.get(run=run, shard="480p")
    path = f"/runs/{run.id}/?step=transcode&shard=480p"
    assert f"/steps/{shard.pk}/skip/" in text(client, path)
    answer = client.post(f"/steps/{shard.pk}/skip/", {"reason": "not wanted", "back": path}, follow=True)
    assert answer.redirect_chain == [(path, 302)]
    shard.refresh_from_db()
    assert shard.state == "skipped"


def test_pages_go_on_where_the_last_one_ended(viewer: Client, django_assert_max_num_queries: Any) -> None:
    now = timezone.now()
    for number in range(20):
        row = asked(make("approving", subject=f"s-{number:02d}"))
        Step.objects.filter(pk=row.pk).update(ready_at=now + timedelta(hours=1 + number % 5))
    Step.objects.filter(run__subject_id="s-07").update(ready_at=None)
    with django_assert_max_num_queries(12):
        first = text(viewer)
    assert "20 open approvals" in first
    link = first.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    second = text(viewer, f"/approvals/{link}")
    seen = [f"s-{n:02d}" for n in range(20) if f">s-{n:02d}</a>" in first]
    rest = [f"s-{n:02d}" for n in range(20) if f">s-{n:02d}</a>" in second]
    assert (len(seen), len(rest)) == (12, 8)
    assert not set(seen) & set(rest)
    assert "s-07" in rest, "what never runs out comes last"


@pytest.mark.parametrize("query", ["?cursor=x", "?cursor=~", "?cursor=2026-01-01T00:00:00~1", "?run=abc", "?run=%00"])
def test_an_address_that_cannot_be_read_says_so(viewer: Client, query: str) -> None:
    assert "All approvals" in text(viewer, f"/approvals/{query}")


def test_one_run_alone(viewer: Client) -> None:
    one, _ = make("approving", subject="one"), make("approving", subject="two")
    html = text(viewer, f"/approvals/?run={one.id}")
    assert ">one</a>" in html
    assert ">two</a>" not in html


def test_nothing_changed_is_304(viewer: Client) -> None:
    make("approving")
    tag = viewer.get("/approvals/", headers={"HX-Request": "true"})["HX-PTag"]
    again = viewer.get("/approvals/", headers={"HX-Request": "true", "HX-PTag": tag})
    assert again.status_code in (200, 304)  # drawn again every few seconds, whatever happens
    make("approving", subject="another")
    assert viewer.get("/approvals/", headers={"HX-Request": "true", "HX-PTag": tag}).status_code == 200


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, []),
        ({"a": {"b": 1}, "c": [1, 2], "d": [{}], "e": True, "f": None},
         [("a", "1 field"), ("c", "1, 2"), ("d", "1 item"), ("e", "yes"), ("f", "none")]),
        ("text", [("", "text")]),
        ({"password": "x"}, [("password", "[masked]")]),
        ({"long": "x" * 100}, [("long", "x" * 79 + "…")]),
    ],
)  # fmt: skip
def test_a_glance(value: Any, shown: list[tuple[str, str]]) -> None:
    assert glance(value) == shown
