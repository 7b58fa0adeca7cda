"""Calls on many: what they take, what they refuse, and how far one has come."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.core.actor import Actor
from orchestrator.engine import bulk
from orchestrator.models import AuditRecord, BulkOperation, DeadLetter, Run
from tests.api.conftest import V1, Caller
from tests.api.test_access import _signed_in
from tests.harness import factory

PATHS = ("/dead-letters/replay", "/dead-letters/discard", "/runs/retry", "/runs/cancel")
WHY = {"reason": "disk is back"}


@pytest.fixture
def failed(db: None) -> list[Run]:
    return [factory.make("failed", subject=f"vid-{n}") for n in range(3)]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filter"),
        ({"filter": {}}, "filter"),
        ({"filter": None}, "filter"),
        ({"filter": {"workflow": ""}}, "filter"),
        ({"filter": {"workflow": None}}, "filter"),
        ({"filter": {"workflow": []}}, "filter"),
        ({"ids": []}, "ids"),
        ({"ids": ["1"], "filter": {"workflow": "x"}}, "ids"),
        ({"filter": {"wrokflow": "x"}}, "filter"),
        ({"filter": {"limit": 3}}, "filter"),
        ({"filter": {"workflow": {"a": 1}}}, "filter.workflow"),
        ({"filter": {"workflow": ["a", "b"]}}, "workflow"),
        ({"filter": {"cause": "gremlins"}}, "cause"),
        ({"filter": {"state": "gone"}}, "state"),
        ({"ids": [None]}, None),
        ({"ids": "all"}, "ids"),
        ({"ids": [True]}, None),
        ({"ids": ["x" * 101]}, None),
    ],
)
def test_what_does_not_say_which_is_refused(api: Caller, path: str, body: dict[str, Any], field: str | None) -> None:
    for more in (WHY, {**WHY, "dry_run": True}):
        status, code, at = api.error("POST", path, {**body, **more})
        assert (status, code) == (422, "invalid")
        assert field is None or at == field
    assert BulkOperation.objects.count() == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_reason_is_asked_for_but_not_by_a_dry_run(api: Caller, path: str) -> None:
    some = {"filter": {"workflow": "video-upload"}}
    assert api.error("POST", path, some)[::2] == (422, "reason")
    assert api.error("POST", path, {**some, "reason": " "})[::2] == (422, "reason")
    assert api("POST", path, {**some, "dry_run": True})[0] == 200


def test_a_dry_run_counts(api: Caller, failed: list[Run]) -> None:
    factory.make("queued")
    status, seen = api("POST", "/runs/retry", {"filter": {"workflow": "video-upload"}, "dry_run": True})
    assert status == 200
    assert seen["dry_run"] is True
    assert (seen["verb"], seen["total"], seen["eligible"]) == ("retry", 4, 3)
    assert seen["states"] == {"failed": 3, "running": 1}
    assert seen["versions"] == {"video-upload v3": 4}
    assert (BulkOperation.objects.count(), AuditRecord.objects.filter(action__startswith="bulk").count()) == (0, 0)


def test_an_operation_from_its_start_to_its_end(api: Caller, failed: list[Run]) -> None:
    letters = list(DeadLetter.objects.order_by("id"))
    one = letters[0]
    ids = [one.pk, str(one.pk), letters[1].pk, 12345678]
    status, made = api("POST", "/dead-letters/discard", {"ids": ids, **WHY})
    assert status == 202
    assert (made["total"], made["state"], made["remaining"], made["filter"]) == (3, "running", 3, None)
    assert made["actor"] == "token:operator"
    where = f"/bulk/{made['id']}"
    assert api("POST", f"{where}/stop", {})[1]["state"] == "stopped"
    assert api.error("POST", f"{where}/stop", {})[:2] == (409, "conflict")
    assert api("POST", f"{where}/resume", WHY)[1]["state"] == "running"
    for _ in range(6):
        BulkOperation.objects.update(due_at="2000-01-01T00:00:00Z")
        bulk.advance(seconds=5)
    report = api("GET", where, role="viewer")[1]
    assert (report["state"], report["done"], report["skipped"], report["remaining"]) == ("done", 2, 1, 0)
    assert [(item["id"], item["state"]) for item in report["items"]] == [
        (str(one.pk), "done"), (str(letters[1].pk), "done"), ("12345678", "skipped"),
    ]  # fmt: skip
    assert report["items"][2]["detail"] == "there is no dead letter 12345678"
    page = api("GET", f"{where}?limit=2", role="viewer")[1]
    assert [item["position"] for item in page["items"]] == [1, 2]
    page = api("GET", f"{where}?limit=2&cursor={page['next_cursor']}", role="viewer")[1]
    assert ([item["position"] for item in page["items"]], page["next_cursor"]) == ([3], None)
    assert [item["id"] for item in api("GET", f"{where}?state=skipped")[1]["items"]] == ["12345678"]
    assert [r.note for r in DeadLetter.objects.order_by("id")[:2]] == ["disk is back"] * 2
    assert AuditRecord.objects.filter(action="discard", actor="token:operator", role="operator").count() == 2


def test_filters_are_those_of_the_lists(api: Caller, failed: list[Run]) -> None:
    DeadLetter.objects.filter(run=failed[0]).update(cause="timeout", fingerprint="abc")
    for given, total in [
        ({"cause": "timeout"}, 1),
        ({"fingerprint": "abc", "workflow": "video-upload"}, 1),
        ({"run": str(failed[1].pk)}, 1),
        ({"state": "open"}, 3),
        ({"step": "transcode"}, 3),
        ({"step": ["transcode"]}, 3),
        ({"step": "nowhere"}, 0),
    ]:
        assert api("POST", "/dead-letters/replay", {"filter": given, "dry_run": True})[1]["total"] == total, given
    for given, total in [
        ({"state": ["failed", "cancelled"]}, 3),
        ({"state": "done"}, 0),
        ({"label": {"tier": "gold"}}, 3),
        ({"label": ["tier:gold", "customer:acme"]}, 3),
        ({"version": 3, "subject_id": "vid-1"}, 1),
        ({"q": "vid-"}, 3),
        ({"overdue": False}, 3),
    ]:
        assert api("POST", "/runs/retry", {"filter": given, "dry_run": True})[1]["total"] == total, given
    made = api("POST", "/runs/retry", {"filter": {"state": ["done"]}, **WHY})
    assert (made[0], made[1]["total"], made[1]["state"]) == (202, 0, "done")
    assert made[1]["filter"] == {"state": ["done"]}


@pytest.mark.parametrize("path", ["/bulk/x", "/bulk/0190c6a0-0000-7000-8000-000000000000", "/bulk/x/stop"])
def test_there_is_no_such_operation(api: Caller, path: str) -> None:
    method = "POST" if path.endswith("stop") else "GET"
    assert api.error(method, path, {} if method == "POST" else None)[:2] == (404, "not_found")


@pytest.mark.parametrize("query", ["cursor=x", "cursor=-1", "limit=0", "limit=201", "state=lost", "page=2"])
def test_a_bad_page_is_refused(api: Caller, query: str) -> None:
    made = bulk.start("retry", Actor("x", "operator"), "why", ids=["a"])
    assert api.error("GET", f"/bulk/{made.pk}?{query}")[:2] == (422, "invalid")


def test_a_session_needs_its_csrf_token(db: None) -> None:
    client: Client = _signed_in("operator")
    body = {"ids": ["1"], **WHY}
    for path in PATHS:
        refused = client.post(f"{V1}{path}", body, content_type="application/json")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf")
    client.cookies["csrftoken"] = token = "a" * 32
    good = client.post(f"{V1}{PATHS[0]}", body, content_type="application/json", headers={"X-CSRFToken": token})
    assert good.status_code == 202
