"""Who may call what: tokens, roles, sessions and their CSRF token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from orchestrator.core.actor import ENGINE, ROLES
from orchestrator.engine.tokens import revoke_token
from orchestrator.models import ApiToken, AuditRecord, DeadLetter
from tests.api.conftest import V1, Caller
from tests.harness import factory

REASON = {"reason": "a test"}
#: (method, path, body, least role)
CALLS: list[tuple[str, str, Any, str]] = [
    ("POST", "/runs", {"workflow": "video-upload", "subject_id": "x"}, "operator"),
    ("POST", "/runs/batch", [{"workflow": "video-upload", "subject_id": "x"}], "operator"),
    ("GET", "/runs", None, "viewer"),
    ("GET", "/runs/{run}", None, "viewer"),
    ("POST", "/runs/{run}/cancel", REASON, "operator"),
    ("POST", "/runs/{failed}/retry", REASON, "operator"),
    ("POST", "/runs/{run}/extend", {**REASON, "deadline": "2h"}, "operator"),
    ("POST", "/runs/{run}/hold", {**REASON, "until": "2h"}, "operator"),
    ("POST", "/runs/{run}/note", {"note": "seen"}, "support"),
    ("GET", "/subjects/vid-8812", None, "support"),
    ("GET", "/dead-letters", None, "viewer"),
    ("GET", "/dead-letters/{letter}", None, "viewer"),
    ("POST", "/dead-letters/{letter}/discard", REASON, "operator"),
    ("POST", "/dead-letters/{letter}/replay", REASON, "operator"),
    ("POST", "/dead-letters/{letter}/settle", {"note": "done by hand"}, "admin"),
    ("GET", "/workflows", None, "viewer"),
    ("GET", "/workflows/video-upload/versions", None, "viewer"),
    ("GET", "/queues", None, "viewer"),
    ("GET", "/topics", None, "viewer"),
    ("GET", "/topics/gpu", None, "viewer"),
    ("PATCH", "/topics/gpu", {"limit": 1}, "operator"),
    ("POST", "/runs/retry", {**REASON, "ids": ["x"]}, "operator"),
    ("POST", "/runs/cancel", {**REASON, "ids": ["x"]}, "operator"),
    ("POST", "/dead-letters/replay", {**REASON, "filter": {"workflow": "x"}}, "operator"),
    ("POST", "/dead-letters/discard", {**REASON, "filter": {"workflow": "x"}}, "operator"),
    ("GET", "/bulk/{run}", None, "viewer"),
    ("POST", "/bulk/{run}/stop", REASON, "operator"),
    ("POST", "/bulk/{run}/resume", REASON, "operator"),
]


@pytest.fixture
def names(db: None) -> dict[str, Any]:
    failed = factory.make("failed")
    return {"run": factory.make("queued").pk, "failed": failed.pk, "letter": DeadLetter.objects.get(run=failed).pk}


@pytest.mark.parametrize("role", [None, *ROLES])
@pytest.mark.parametrize(("method", "path", "body", "least"), CALLS, ids=[f"{c[0]} {c[1]}" for c in CALLS])
def test_every_call_asks_for_its_role(
    api: Caller, names: dict[str, Any], role: str | None, method: str, path: str, body: Any, least: str
) -> None:
    status, answer = api(method, path.format(**names), body, role=role)
    if role is None:
        assert (status, answer["error"]["code"]) == (401, "unauthenticated")
    elif ROLES.index(role) < ROLES.index(least):
        assert (status, answer["error"]["code"]) == (403, "forbidden")
        # Whoever may not act is not told what would be wrong with the body either.
        assert api(method, path.format(**names), raw=b"{", role=role)[0] == 403
    else:
        assert status not in (401, 403, 405, 500)


@pytest.mark.parametrize("header", ["Bearer nope", "Bearer ", "Bearer", "Basic dXNlcjpwYXNz", "Bearer \udcff", "x"])
def test_a_wrong_token_is_401(api: Caller, header: str) -> None:
    assert api.error("GET", "/runs", role=None, HTTP_AUTHORIZATION=header)[:2] == (401, "unauthenticated")


def test_a_wrong_token_is_not_rescued_by_a_session(api: Caller) -> None:
    api.client.force_login(User.objects.create_superuser("boss"))
    assert api("GET", "/runs", role=None)[0] == 200
    assert api.error("GET", "/runs", role=None, HTTP_AUTHORIZATION="Bearer nope")[0] == 401


def test_a_revoked_token_is_refused_at_once(api: Caller) -> None:
    assert api("GET", "/runs", role="viewer")[0] == 200
    revoke_token("viewer", ENGINE, "left the company")
    assert api.error("GET", "/runs", role="viewer")[0] == 401
    assert AuditRecord.objects.get(action="revoke_token").subject == "token viewer"


def test_only_the_hash_is_kept_and_use_is_noted_once_a_minute(api: Caller) -> None:
    token = ApiToken.objects.get(name="viewer")
    assert api.tokens["viewer"] not in token.token_hash
    api("GET", "/runs", role="viewer")
    first = ApiToken.objects.get(name="viewer").last_used_at
    assert first is not None
    api("GET", "/runs", role="viewer")
    assert ApiToken.objects.get(name="viewer").last_used_at == first
    ApiToken.objects.filter(name="viewer").update(last_used_at=timezone.now() - timedelta(minutes=2))
    api("GET", "/runs", role="viewer")
    assert ApiToken.objects.get(name="viewer").last_used_at >= first


def _signed_in(role: str | None) -> Client:
    user = User.objects.create_user(f"user-{role}")
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def test_a_session_needs_its_csrf_token_to_change_anything(db: None) -> None:
    factory.definition()
    client = _signed_in("operator")
    start = {"workflow": "video-upload", "subject_id": "x"}
    assert client.get(f"{V1}/runs").status_code == 200
    refused = client.post(f"{V1}/runs", start, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf")
    client.cookies["csrftoken"] = token = "a" * 32
    good = client.post(f"{V1}/runs", start, content_type="application/json", headers={"X-CSRFToken": token})
    assert good.status_code == 201
    assert good.json()["submitted_by"] == "user-operator"
    foreign = {"X-CSRFToken": token, "Origin": "https://evil.example"}
    assert client.post(f"{V1}/runs", start, content_type="application/json", headers=foreign).status_code == 403


def test_a_session_has_the_role_of_its_user(db: None) -> None:
    assert _signed_in("viewer").get(f"{V1}/subjects/x").status_code == 403
    assert _signed_in(None).get(f"{V1}/runs").status_code == 403
    user = User.objects.create_user("gone")
    client = Client()
    client.force_login(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert client.get(f"{V1}/runs").status_code == 401


def test_reading_changes_nothing(api: Caller, names: dict[str, Any]) -> None:
    api("GET", "/runs", role="admin")
    before = list(AuditRecord.objects.values_list("pk", flat=True))
    for method, path, _, _ in CALLS:
        if method != "GET":
            assert api("GET", path.format(**names), role="admin")[0] in (200, 404, 405)
    assert list(AuditRecord.objects.values_list("pk", flat=True)) == before
