"""Who gets in, and what the others are told."""

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import Client

from dashboard.access import may, role_of

PAGES = [
    "/", "/runs/", "/overdue/", "/dead-letters/", "/where/", "/workflows/", "/queues/", "/health/", "/audit/",
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_the_signed_out_are_sent_to_sign_in(client, page):
    answer = client.get(page)
    assert answer.status_code == 302
    assert answer["Location"] == f"/login/?next={page}"


@pytest.mark.django_db
def test_a_polling_region_takes_the_window_to_sign_in(client):
    answer = client.get("/", headers={"HX-Request": "true"})
    assert answer["HX-Redirect"] == "/login/?next=%2F"
    assert not answer.content


@pytest.mark.parametrize("page", PAGES)
def test_somebody_without_a_group_is_refused_and_told_who_can_help(sign_in, page):
    answer = sign_in("").get(page)
    assert answer.status_code == 403
    assert "in none of the groups" in answer.content.decode()


@pytest.mark.django_db
def test_the_highest_group_counts_and_a_superuser_is_admin():
    user = User.objects.create(username="mara")
    assert role_of(user) == ""
    user.groups.set(Group.objects.filter(name__in=["viewer", "operator"]))
    assert role_of(User.objects.get()) == "operator"
    assert may(User.objects.get(), "support")
    assert not may(User.objects.get(), "admin")
    assert role_of(User(username="root", is_superuser=True)) == "admin"
    assert role_of(User(username="gone", is_superuser=True, is_active=False)) == ""
    assert role_of(AnonymousUser()) == ""


@pytest.mark.django_db
def test_the_four_groups_exist_and_only_admins_may_change_things_in_the_admin():
    names = {g.name: set(g.permissions.values_list("codename", flat=True)) for g in Group.objects.all()}
    assert {"viewer", "support", "operator", "admin"} <= set(names)
    assert "view_run" in names["viewer"]
    assert "view_apitoken" not in names["operator"]
    assert not [code for code in names["operator"] if not code.startswith("view_")]
    assert {"add_apitoken", "change_user", "change_schedule"} <= names["admin"]
    assert "change_run" not in names["admin"], "the engine alone writes runs"


@pytest.mark.django_db
def test_sign_in_and_out():
    User.objects.create_user("vera", password="open-sesame").groups.add(Group.objects.get(name="viewer"))
    client = Client(enforce_csrf_checks=True)
    page = client.get("/login/").content.decode()
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    wrong = client.post("/login/", {"username": "vera", "password": "x", "csrfmiddlewaretoken": token})
    assert "do not go together" in wrong.content.decode()
    right = client.post(
        "/login/", {"username": "vera", "password": "open-sesame", "next": "/runs/", "csrfmiddlewaretoken": token}
    )
    assert right["Location"] == "/runs/"
    assert client.get("/logout/").status_code == 405, "signing out changes something, so it is a POST"


@pytest.mark.django_db
def test_sign_in_follows_no_address_of_elsewhere():
    User.objects.create_user("vera", password="open-sesame")
    data = {"username": "vera", "password": "open-sesame", "next": "//evil.example/"}
    assert Client().post("/login/", data)["Location"] == "/"
