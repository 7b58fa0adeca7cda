"""Starting, cancelling, retrying, dead letters: statuses, answers, and what stands in the audit trail."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from orchestrator.models import AuditRecord, DeadLetter, Run
from tests.api.conftest import Caller
from tests.harness import factory

START = {"workflow": "video-upload", "subject_id": "vid-1", "input": {"path": "a.mp4", "password": "hunter2"}}


@pytest.fixture(autouse=True)
def published(db: None) -> None:
    factory.definition()


def test_start_answers_the_run(api: Caller) -> None:
    status, run = api("POST", "/runs", {**START, "labels": {"tier": "gold"}, "deadline": "1h"})
    assert status == 201
    assert (run["workflow"], run["subject_id"], run["state"]) == ("video-upload", "vid-1", "running")
    assert run["labels"]["tier"] == "gold"
    assert run["input"]["path"] == "a.mp4"
    assert "hunter2" not in str(run)
    assert run["steps"][0]["step"] == "probe"
    assert all(step["state"] == "pending" for step in run["steps"][1:])
    assert run["submitted_at"].endswith("Z")
    again = api("GET", f"/runs/{run['id']}")[1]
    assert {**again, "where": 0, "updated_at": 0} == {**run, "where": 0, "updated_at": 0}
    assert api("GET", f"/runs/{run['id'].upper()}")[0] == 200


def test_a_repeated_key_answers_the_same_run(api: Caller) -> None:
    first = api("POST", "/runs", {**START, "idempotency_key": "k"})
    second = api("POST", "/runs", {**START, "idempotency_key": "k"})
    assert (first[0], second[0]) == (201, 200)
    assert first[1]["id"] == second[1]["id"]
    other = {**START, "idempotency_key": "k", "input": {}}
    assert api.error("POST", "/runs", other) == (409, "conflict", "idempotency_key")
    assert Run.objects.count() == 1


def test_a_batch_is_all_or_nothing(api: Caller) -> None:
    status, body = api("POST", "/runs/batch", {"runs": [START, {**START, "subject_id": "vid-2"}]})
    assert status == 201
    assert [run["subject_id"] for run in body["items"]] == ["vid-1", "vid-2"]
    bad = {"runs": [{**START, "subject_id": "vid-3"}, {**START, "workflow": "nope"}]}
    assert api.error("POST", "/runs/batch", bad) == (404, "not_found", "runs[1].workflow")
    assert Run.objects.count() == 2
    assert api.error("POST", "/runs/batch", {"runs": []})[0] == 422
    assert api("POST", "/runs/batch", [START])[0] == 201
    assert api.error("POST", "/runs/batch", {"runs": [START] * 1001})[0] == 422
    keyed = {**START, "idempotency_key": "k"}
    assert api("POST", "/runs/batch", [keyed])[0] == 201
    assert api("POST", "/runs/batch", [keyed, keyed])[0] == 200


@pytest.mark.parametrize("run_id", ["abc", "0", "8ebf5583-3d1e-4865-becb-4ce4e3c0d3be", "..", "a" * 300, "%00"])
def test_unknown_runs_are_404(api: Caller, run_id: str) -> None:
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/cancel", {"reason": "x"}),
        ("POST", "/retry", {"reason": "x"}),
        ("POST", "/retry", {"dry_run": True}),
    ):
        assert api.error(method, f"/runs/{run_id}{path}", body)[0] == 404


ENDED = {"done", "failed", "partial", "cancelled"}


@pytest.mark.parametrize("stage", sorted(set(factory.STAGES) - {"wide"}))
def test_each_stage_takes_the_actions_of_its_state(api: Caller, stage: str) -> None:
    can_cancel = stage not in ENDED and stage != "compensating"
    run = factory.make(stage)
    status, body = api("POST", f"/runs/{run.pk}/cancel", {"reason": "customer left"})
    assert status == (200 if can_cancel else 409), body
    run = factory.make(stage)
    can_retry = stage in ENDED - {"done"}
    for extra in ({"dry_run": True}, {"reason": "fixed"}):
        status, body = api("POST", f"/runs/{run.pk}/retry", extra)
        assert status == (200 if can_retry else 409), body


def test_cancel_says_who_and_why(api: Caller) -> None:
    run = factory.make("queued")
    status, body = api("POST", f"/runs/{run.pk}/cancel", {"reason": "customer left"})
    assert (status, body["id"]) == (200, str(run.pk))
    assert body["cancel_requested_at"]
    record = AuditRecord.objects.get(run=run, action="cancel")
    assert (record.actor, record.role, record.reason) == ("token:operator", "operator", "customer left")
    assert record.before
    assert record.after
    assert api.error("POST", f"/runs/{run.pk}/cancel", {"reason": "again"})[0] == 409


@pytest.mark.parametrize("name", ["note", "reason", "text"])
def test_a_note_by_any_of_its_names(api: Caller, name: str) -> None:
    run = factory.make("done")
    assert api("POST", f"/runs/{run.pk}/note", {name: "the customer called"})[0] == 200
    assert AuditRecord.objects.get(run=run, action="note").reason == "the customer called"
    assert api.error("POST", f"/runs/{run.pk}/note", {})[2] == "note"


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_who_decided_is_not_masked_like_a_secret(api: Caller, decision: str) -> None:
    run = factory.make("approving")
    step = next(s for s in api("GET", f"/runs/{run.pk}")[1]["steps"] if s["step"] == "approve")
    status, body = api("POST", f"/steps/{step['id']}/{decision}", {"reason": "so"}, role="admin")
    assert status == 200
    step = next(s for s in body["steps"] if s["step"] == "approve")
    assert "token admin" in (step["output"]["approved_by"] if decision == "approve" else step["error"]["message"])


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": " "}, {"reason": 5}, {"reason": "x", "force": "yes"}])
def test_cancel_needs_a_reason(api: Caller, body: dict[str, Any]) -> None:
    run = factory.make("queued")
    assert api.error("POST", f"/runs/{run.pk}/cancel", body)[0] == 422
    run.refresh_from_db()
    assert run.cancel_requested_at is None


def test_a_dry_run_changes_nothing(api: Caller) -> None:
    run = factory.make("failed")
    status, preview = api("POST", f"/runs/{run.pk}/retry", {"dry_run": True})
    assert status == 200
    assert preview["dry_run"] is True
    assert {"step", "shard", "why", "attempt", "side_effects"} == set(preview["steps"][0])
    assert preview["side_effects"] == {}
    run.refresh_from_db()
    assert run.state == "failed"
    assert api.error("POST", f"/runs/{run.pk}/retry", {"dry_run": True, "from_step": "nope"})[2] == "from_step"
    assert api.error("POST", f"/runs/{run.pk}/retry", {"reason": ""})[2] == "reason"


def test_where_a_subject_stands(api: Caller) -> None:
    factory.make("failed", subject="folder/vid 9", ago=5000.0)
    live = factory.make("retrying", subject="folder/vid 9")
    status, body = api("GET", "/subjects/folder/vid%209", role="support")
    assert status == 200
    assert body["subject_id"] == "folder/vid 9"
    assert "480p" in body["answer"]
    assert "480p" not in body["reply"]
    assert "transcode" not in body["reply"]
    assert body["runs"][0]["id"] == str(live.pk)
    for unknown in ("nobody", "a%00b"):
        assert api.error("GET", f"/subjects/{unknown}")[0] == 404


@pytest.mark.parametrize("subject", ["a/b", "a\nb", "..", 'é "q" 🎉', "a?b#c%"])
def test_any_subject_can_be_asked_for(api: Caller, subject: str) -> None:
    factory.make("done", subject=subject)
    status, body = api("GET", f"/subjects/{quote(subject, safe='')}", role="support")
    assert (status, body["subject_id"]) == (200, subject)


def test_dead_letters_are_discarded_once(api: Caller) -> None:
    letter = DeadLetter.objects.get(run=factory.make("failed"))
    path = f"/dead-letters/{letter.pk}"
    assert api("GET", path)[1]["state"] == "open"
    assert api.error("POST", f"{path}/discard", {"reason": ""})[0] == 422
    status, body = api("POST", f"{path}/discard", {"reason": "known, refunded"})
    assert (status, body["state"]) == (200, "discarded")
    assert api.error("POST", f"{path}/discard", {"reason": "again"})[0] == 409
    assert api.error("POST", f"{path}/replay", {"reason": "again"})[0] == 409


def test_a_dead_letter_is_replayed(api: Caller) -> None:
    run = factory.make("failed")
    letter = DeadLetter.objects.get(run=run)
    status, body = api("POST", f"/dead-letters/{letter.pk}/replay", {"reason": "more memory"})
    assert (status, body["state"]) == (200, "replayed")
    assert api("GET", f"/runs/{run.pk}")[1]["state"] == "running"


@pytest.mark.parametrize("letter_id", ["0", "abc", "99999999", "9" * 40, "-1", "%00", "1.5"])
def test_unknown_dead_letters_are_404(api: Caller, letter_id: str) -> None:
    assert api.error("GET", f"/dead-letters/{letter_id}")[0] == 404
    for verb in ("replay", "discard"):
        assert api.error("POST", f"/dead-letters/{letter_id}/{verb}", {"reason": "x"})[0] == 404


def test_openapi_names_the_refusals_of_every_call(api: Caller) -> None:
    document = api("GET", "/openapi.json")[1]
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            wanted = {"401", "403"} | ({"400", "413", "415"} if "requestBody" in call else set())
            assert wanted <= set(call["responses"]), (method, path)
    assert "Error" in document["components"]["schemas"]


def test_openapi_names_every_call(api: Caller) -> None:
    status, schema = api("GET", "/openapi.json", role=None)
    assert status == 200
    calls = {f"{method.upper()} {path}" for path, item in schema["paths"].items() for method in item}
    for call in (
        "POST /api/v1/runs",
        "GET /api/v1/runs",
        "POST /api/v1/runs/{run_id}/cancel",
        "PATCH /api/v1/topics/{name}",
    ):
        assert call in calls
    assert {p["name"] for p in schema["paths"]["/api/v1/runs"]["get"]["parameters"]} >= {
        "waiting_longer_than",
        "cursor",
    }
