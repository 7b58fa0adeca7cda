"""Many who watch one page: one answer is drawn, each gets a copy that is right for him, and nobody an old one."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import caches
from django.test import Client

from dashboard import shared_regions
from dashboard.models import SavedView
from dashboard.views import runs
from tests.harness.factory import make

ASKS = {"HX-Request": "true"}


@pytest.fixture
def readers(db: None) -> Any:
    """``readers("viewer", 3)``: windows of three people, whose forms are checked as those of browsers are."""

    def sign_in(role: str, count: int) -> list[Client]:
        found = []
        for n in range(count):
            user = User.objects.create_user(f"{role}-{n}")
            user.groups.set(Group.objects.filter(name=role))
            client = Client(enforce_csrf_checks=True)
            client.force_login(user)
            client.get("/runs/new/" if role == "operator" else "/where/")
            found.append(client)
        return found

    return sign_in


def token(answer: Any) -> str:
    (found,) = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.content.decode()))
    return str(found)


def test_one_draws_and_the_others_get_copies(readers, django_assert_num_queries):
    make("failed", subject="one")
    first, second = readers("viewer", 2)
    drawn = first.get("/runs/", headers=ASKS)
    make("failed", subject="two")
    once = second.get("/runs/", headers=ASKS)
    with django_assert_num_queries(0):
        again = second.get("/runs/", headers=ASKS)
    for copy in (once, again):
        assert (copy.status_code, copy.content) == (200, drawn.content)
        assert int(copy["Content-Length"]) == len(copy.content)
        assert {k: v for k, v in copy.items() if k != "Set-Cookie"} == {
            k: v for k, v in drawn.items() if k != "Set-Cookie"
        }
    with django_assert_num_queries(0):
        same = second.get("/runs/", headers={**ASKS, "HX-PTag": drawn["HX-PTag"].partition(".")[0]})
    assert (same.status_code, same.content) == (304, b"")


def test_nobody_gets_what_he_has_or_an_older_copy(readers):
    make("failed", subject="one")
    (viewer,) = readers("viewer", 1)
    seen = viewer.get("/runs/", headers=ASKS)
    make("failed", subject="two")
    asked = viewer.get("/runs/", headers={**ASKS, "HX-PTag": seen["HX-PTag"]})
    assert b">two<" in asked.content, "his own next tick"
    make("failed", subject="three")
    page = viewer.get("/runs/")
    make("failed", subject="four")
    asked = viewer.get("/runs/", headers={**ASKS, "HX-PTag": page["HX-PTag"]})
    assert b">four<" in asked.content, "a page that is younger than the copy"


def test_each_reader_gets_a_token_of_his_own(readers):
    make("failed")
    first, second = readers("operator", 2)
    answers = [client.get("/dead-letters/", headers=ASKS) for client in (first, second, second)]
    tokens = [token(answer) for answer in answers]
    assert len({*tokens}) == 3 and all(int(a["Content-Length"]) == len(a.content) for a in answers)
    form = {"name": "Mine", "query": "state=failed"}
    assert first.post("/runs/views/save/", {**form, "csrfmiddlewaretoken": tokens[1]}).status_code == 403
    assert not SavedView.objects.exists()
    for client, given in ((first, tokens[0]), (second, tokens[2])):
        client.post("/runs/views/save/", {**form, "name": given[:5], "csrfmiddlewaretoken": given})
    assert SavedView.objects.count() == 2


def test_roles_and_zones_share_nothing(readers):
    make("failed")
    (viewer,), (operator,) = readers("viewer", 1), readers("operator", 1)
    assert b"<form" in operator.get("/dead-letters/", headers=ASKS).content
    assert b"<form" not in viewer.get("/dead-letters/", headers=ASKS).content
    utc = viewer.get("/runs/", headers=ASKS).content
    make("failed")
    viewer.cookies["zone"] = "Asia/Tokyo"
    assert viewer.get("/runs/", headers=ASKS).content != utc


def test_who_has_no_role_any_more_is_trusted_for_some_seconds_only(readers):
    make("failed")
    one, other = readers("viewer", 2)
    for client in (one, other):
        assert client.get("/runs/", headers=ASKS).status_code == 200
    User.objects.get(username="viewer-1").groups.clear()
    assert other.get("/runs/").status_code == 403
    caches["readers"].clear()  # the seconds are over
    assert other.get("/runs/", headers=ASKS).status_code == 403
    assert one.get("/runs/", headers=ASKS).status_code == 200
    one.logout()
    assert "HX-Redirect" in one.get("/runs/", headers=ASKS)


def test_what_is_no_region_is_not_kept(readers, monkeypatch):
    (viewer,) = readers("viewer", 1)
    monkeypatch.setattr("dashboard.views.runs.listing", lambda asked: 1 / 0)
    viewer.raise_request_exception = False
    assert viewer.get("/runs/", headers=ASKS).status_code == 500
    monkeypatch.undo()
    assert viewer.get("/runs/", headers=ASKS).status_code == 200


def test_a_copy_that_is_old_is_drawn_anew_by_one(readers, monkeypatch, django_assert_num_queries):
    """While the second draws it, the first and third still get the copy; after that they get the new one."""
    make("failed", subject="one")
    first, second, third = readers("viewer", 3)
    for client in (first, second, third):
        client.get("/runs/", headers=ASKS)
    make("failed", subject="two")
    meanwhile, listing = [], runs.listing

    def draw(asked):
        monkeypatch.setattr(runs, "listing", listing)
        with django_assert_num_queries(0):
            meanwhile.extend(client.get("/runs/", headers=ASKS) for client in (first, third))
        return listing(asked)

    monkeypatch.setattr(runs, "listing", draw)
    now = time.time() + shared_regions.SHARED + 0.1
    monkeypatch.setattr(shared_regions, "time", SimpleNamespace(time=lambda: now))
    assert b">two<" in second.get("/runs/", headers=ASKS).content
    assert len(meanwhile) == 2 and all(b">one<" in a.content and b">two<" not in a.content for a in meanwhile)
    with django_assert_num_queries(0):
        assert b">two<" in third.get("/runs/", headers=ASKS).content
