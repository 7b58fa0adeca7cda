"""C94, C96: who may look and who may act, at every address that the walk of the URL table finds.

What an address asks for is not repeated here: pages say it on their view, and CONTRACT 6 gives the least that may be
asked of an action. So a page that is added is held to it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from orchestrator.core.actor import ENGINE, ROLES, Actor, allows
from orchestrator.core.bulk import BulkVerb
from orchestrator.engine import bulk
from orchestrator.engine.tokens import create_token
from orchestrator.models import BulkOperation, DeadLetter, Run, Step, Topic
from tests.harness.factory import make
from tests.harness.urls import Address, addresses

pytestmark = pytest.mark.django_db
#: Open to everybody: to sign in and out, whether it is up, what the API looks like. Links that a customer was given
#: carry their permission in the address.
OPEN = {"login", "logout", "admin:login", "admin:logout", "healthz", "readyz", "metrics", "api:openapi-json",
        "customer", "shared", "share-view"}  # fmt: skip
#: Actions that less than an operator may do (CONTRACT 6: notes, watch, share, ask where; views that a team keeps).
BY_SUPPORT = ("note", "watch", "share", "view", "theme", "zone", "clock")
#: Actions that only an admin may do.
BY_ADMIN = ("schedule", "token", "repair", "settle", "user", "retire", "restore", "version-use")
#: Methods that change something.
CHANGING = ("POST", "PATCH", "PUT", "DELETE")


class Site:
    """Runs, and every address with the ids of one of them."""

    def __init__(self) -> None:
        self.runs = {
            stage: make(stage, subject=f"vid-{stage}") for stage in ("failed", "mid_fan_out", "approving", "done")
        }
        failed = self.runs["failed"]
        Topic.objects.create(name="gpu", limit=3)
        bulk.start(
            BulkVerb.CANCEL, Actor("olga", "operator"), "x", filters=None, ids=[str(self.runs["mid_fan_out"].pk)]
        )
        samples = {
            "run_id": failed.pk, "operation_id": BulkOperation.objects.get().pk, "object_id": failed.pk, "name": "gpu",
            "dead_letter_id": DeadLetter.objects.get(run=failed).pk, "subject_id": "vid-failed", "id": 1,
            "step_id": Step.objects.get(run=self.runs["approving"], step="approve").pk,
        }  # fmt: skip
        self.addresses = addresses(samples)

    def visitor(self, role: str, **options: Any) -> Client:
        """Somebody with the role, who may enter the admin; empty: with none."""
        user, _ = User.objects.get_or_create(username=f"a-{role}", is_staff=True)
        user.groups.set(Group.objects.filter(name=role))
        client = Client(raise_request_exception=False, **options)
        client.force_login(user)
        return client


@pytest.fixture
def site() -> Site:
    return Site()


def own(site: Site) -> Iterator[Address]:
    """Addresses that are not open to everybody."""
    yield from (a for a in site.addresses if a.name not in OPEN)


def least(address: Address) -> str:
    """The least role that CONTRACT 6 lets change something here."""
    if address.name.startswith("django_rq:") or any(word in address.name for word in BY_ADMIN):
        return "admin"
    return "support" if any(word in address.name for word in BY_SUPPORT) else "operator"


def snapshot() -> dict[str, Any]:
    """What must not change: every table of ours, and who may sign in."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name ~ %s",
            ["^(workflow_|dashboard_|auth_)"],
        )
        names = [row[0] for row in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {name} t")
            found[name] = cursor.fetchone()[0]
    return found


def test_the_walk_finds_what_there_is(site: Site) -> None:
    parts = {part: sum(a.part == part for a in site.addresses) for part in ("dashboard", "api", "admin", "service")}
    assert parts["dashboard"] > 30 and parts["api"] > 25 and parts["admin"] > 60 and parts["service"] == 3
    said = [a for a in site.addresses if a.part == "dashboard" and not a.least and a.name not in OPEN]
    assert [a.name for a in said] == [], "a view of the dashboard says what role it needs: @require_role"


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}], ids=["page", "fragment"])
def test_the_signed_out_get_in_nowhere(site: Site, headers: dict[str, str]) -> None:
    client, before, bad = Client(raise_request_exception=False), snapshot(), []
    for address in own(site):
        for method in ("GET", "POST"):
            answer = client.generic(method, address.path, headers=headers)
            sent = answer.status_code in (301, 302) and (
                "login" in answer["Location"] or answer["Location"].endswith("/")
            )
            moved = answer.status_code == 204 and "login" in answer.get("HX-Redirect", "")
            if not (sent or moved or answer.status_code in (401, 403, 405)) and answer.status_code != 404:
                bad.append(f"{method} {address.path} ({address.name}): {answer.status_code}")
    assert bad == []
    assert snapshot() == before


@pytest.mark.parametrize("role", ["", *ROLES[:-1]])
def test_nobody_acts_above_their_role(site: Site, role: str) -> None:
    """Every changing method with an empty body: who may not is told so, before anything is said of the body."""
    client, before, bad = site.visitor(role), snapshot(), []
    token = {"X-CSRFToken": "a" * 32}
    client.cookies["csrftoken"] = "a" * 32
    for address in own(site):
        allowed = allows(role, address.least or least(address)) and address.part != "admin"
        if allowed:
            continue
        for method in CHANGING if address.part == "api" else ("POST",):
            answer = client.generic(method, address.path, headers=token)
            # The admin answers a POST without an action like a GET: there the tables below are what counts.
            if answer.status_code not in (403, 404, 405) and address.part != "admin":
                bad.append(f"{role or 'nobody'}: {method} {address.path} ({address.name}): {answer.status_code}")
    assert bad == []
    assert snapshot() == before


def test_what_a_view_asks_for_is_at_least_what_the_contract_says(site: Site) -> None:
    """A dashboard address that takes a POST from a viewer, or one for admins from an operator, would be a hole."""
    bad = []
    for address in own(site):
        if address.part != "dashboard":
            continue
        answer = site.visitor("admin").options(address.path)
        takes_post = "POST" in answer.get("Allow", "POST") and answer.status_code != 404
        if takes_post and _changes(site, address) and not allows(address.least, least(address)):
            bad.append(f"{address.path} ({address.name}) asks for {address.least}, CONTRACT 6 for {least(address)}")
    assert bad == []


def _changes(site: Site, address: Address) -> bool:
    """Whether a POST is taken as one: a page that is only looked at answers it like a GET."""
    client = site.visitor("admin")
    seen, sent = client.get(address.path), client.post(address.path)
    return sent.status_code != 405 and (seen.status_code == 405 or sent.status_code != seen.status_code)


@pytest.mark.parametrize("role", ROLES)
def test_every_page_opens_for_whom_it_is_meant(site: Site, role: str) -> None:
    client, bad = site.visitor(role), []
    for address in own(site):
        if address.part != "dashboard":
            continue
        for headers in ({}, {"HX-Request": "true"}):
            answer = client.get(address.path, headers=headers)
            if answer.status_code >= 500:
                bad.append(f"{address.path} ({address.name}): {answer.status_code}")
            if answer.status_code != 405 and (answer.status_code == 403) == allows(role, address.least):
                bad.append(f"{role} at {address.path} ({address.name}, for {address.least}): {answer.status_code}")
    assert bad == []


def test_reading_changes_nothing_and_what_only_changes_cannot_be_read(site: Site) -> None:
    """GET and HEAD by somebody who may do everything, as a crawler or a prefetch would."""
    client, bad = site.visitor("admin"), []
    before = snapshot()
    for address in own(site):
        if address.name.startswith("django_rq:"):
            continue  # tests/admin/test_rq_pages.py
        for method in ("GET", "HEAD"):
            answer = client.generic(method, address.path)
            if answer.status_code >= 500:
                bad.append(f"{method} {address.path}: {answer.status_code}")
    assert bad == []
    after = snapshot()
    assert {name for name in before if before[name] != after[name]} <= {"auth_user"}  # no table of ours


def test_a_session_changes_nothing_without_its_token(site: Site) -> None:
    client, bad = site.visitor("admin", enforce_csrf_checks=True), []
    before = snapshot()
    for address in own(site):
        for headers in ({}, {"Origin": "https://evil.example", "X-CSRFToken": "a" * 32}):
            answer = client.post(address.path, {"reason": "x", "confirmed": "yes"}, headers=headers)
            if answer.status_code not in (301, 403, 404, 405):
                bad.append(f"POST {address.path} ({address.name}): {answer.status_code}")
    assert bad == []
    assert snapshot() == before


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_the_api_may_what_its_role_may(site: Site, role: str) -> None:
    """A call that changes something is open from the role on that CONTRACT 6 names, whatever its body."""
    token, client, bad = create_token(f"t-{role}", role, ENGINE), Client(raise_request_exception=False), []
    headers = {"Authorization": f"Bearer {token}"}
    for address in own(site):
        if address.part != "api":
            continue
        for method in CHANGING:
            answer = client.generic(method, address.path, b"[", content_type="application/json", headers=headers)
            may = allows(role, least(address))
            if answer.status_code not in (404, 405) and (answer.status_code == 403) == may:
                bad.append(f"{role}: {method} {address.path}: {answer.status_code}")
    assert bad == []
    assert not Run.objects.filter(cancel_requested_at__isnull=False).exists()
