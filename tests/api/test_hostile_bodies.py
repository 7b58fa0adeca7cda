"""Case C90: whatever a start request holds, the answer is a JSON error and nothing is made."""

from __future__ import annotations

import pytest

from orchestrator.models import Run, Step
from tests.api.conftest import Caller
from tests.harness import factory

OK = b'{"workflow": "video-upload", "subject_id": "x"%s}'
BODIES: list[tuple[str, bytes, int]] = [
    ("list", b"[]", 422),
    ("null", b"null", 422),
    ("text", b'"x"', 422),
    ("number", b"7", 422),
    ("open brace", b"{", 400),
    ("empty", b"", 422),
    ("blanks", b"  ", 400),
    ("10 MB", b'{"workflow": "' + b"x" * 10_000_000 + b'"}', 413),
    ("just over 1 MB", b" " * (1024 * 1024) + b"{}", 413),
    ("not UTF-8", b'{"workflow": "\xff\xfe"}', 400),
    ("latin-1", '{"workflow": "é"}'.encode("latin-1"), 400),
    ("byte order mark", b"\xef\xbb\xbf{}", 400),
    ("key twice", b'{"workflow": "a", "workflow": "b"}', 400),
    ("key twice inside", OK % b', "input": {"a": 1, "a": 2}', 400),
    ("NUL", OK % b', "idempotency_key": "a\\u0000b"', 400),
    ("NUL in a key", OK % b', "input": {"a\\u0000": 1}', 400),
    ("raw NUL", b'{"workflow": "a\x00b"}', 400),
    ("half a surrogate pair", OK % b', "input": {"a": "\\ud800"}', 400),
    ("NaN", OK % b', "input": {"a": NaN}', 400),
    ("infinity", OK % b', "input": {"a": -Infinity}', 400),
    ("infinity by size", OK % b', "input": {"a": 1e999}', 400),
    ("endless number", OK % (b', "input": {"a": ' + b"9" * 5000 + b"}"), 400),
    ("deep list", b"[" * 100_000, 400),
    ("deep object", OK % (b', "input": ' + b'{"a":' * 300 + b"1" + b"}" * 300), 400),
    ("two documents", b"{} {}", 400),
    ("unknown field", OK % b', "colour": "red"', 422),
    ("input is a list", OK % b', "input": []', 422),
    ("input is text", OK % b', "input": "x"', 422),
    ("version is text", OK % b', "version": "3"', 422),
    ("version is true", OK % b', "version": true', 422),
    ("version is zero", OK % b', "version": 0', 422),
    ("version is huge", OK % b', "version": 99999999999999999999', 422),
    ("unknown version", OK % b', "version": 99', 404),
    ("labels are a list", OK % b', "labels": ["a"]', 422),
    ("label is a number", OK % b', "labels": {"a": 1}', 422),
    ("bad duration", OK % b', "deadline": "2 hours"', 422),
    ("negative delay", OK % b', "delay": -5', 422),
    ("after is no id", OK % b', "after": ["yesterday"]', 422),
    ("empty key", OK % b', "idempotency_key": ""', 422),
    ("no subject", b'{"workflow": "video-upload"}', 422),
    ("empty subject", b'{"workflow": "video-upload", "subject_id": ""}', 422),
    ("blank subject", b'{"workflow": "video-upload", "subject_id": "  "}', 422),
    ("subject is a number", b'{"workflow": "video-upload", "subject_id": 5}', 422),
    ("long subject", b'{"workflow": "video-upload", "subject_id": "' + b"x" * 501 + b'"}', 422),
    ("unknown workflow", b'{"workflow": "nope", "subject_id": "x"}', 404),
]


@pytest.mark.parametrize(("raw", "status"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_a_bad_body_is_refused_and_makes_nothing(api: Caller, raw: bytes, status: int) -> None:
    factory.definition()
    assert api.error("POST", "/runs", raw=raw)[0] == status
    assert not Run.objects.exists()
    assert not Step.objects.exists()


OTHER_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
)


@pytest.mark.parametrize("content_type", OTHER_TYPES)
def test_another_content_type_is_415(api: Caller, content_type: str) -> None:
    assert api.error("POST", "/runs", raw=b"{}", content_type=content_type)[:2] == (415, "unsupported_media_type")


def test_a_body_without_a_length_is_411(api: Caller) -> None:
    assert api.error("POST", "/runs", raw=b"", HTTP_TRANSFER_ENCODING="chunked")[0] == 411


def test_the_field_at_fault_is_named(api: Caller) -> None:
    bad = {"runs": [{"workflow": "a", "subject_id": "x"}, {"workflow": "a", "subject_id": "x", "input": []}]}
    assert api.error("POST", "/runs/batch", bad) == (422, "invalid", "runs[1].input")
    assert api.error("POST", "/runs", {"workflow": "a", "subject_id": "x", "labels": {"k": 1}})[2] == "labels.k"


def test_unknown_paths_and_methods_are_json(api: Caller) -> None:
    assert api.error("GET", "/nothing/here")[:2] == (404, "not_found")
    assert api.error("POST", "/runs/")[0] == 404
    assert api.error("DELETE", "/runs")[:2] == (405, "method_not_allowed")
    assert api.error("GET", "/runs/retry")[0] == 405
    for path in ("/api/", "/api/v2/runs", "/api/v1/"):
        response = api.client.get(path)
        assert (response.status_code, response["Content-Type"]) == (404, "application/json")


def test_a_foreign_host_gets_json_too(api: Caller, settings: object) -> None:
    settings.ALLOWED_HOSTS = ["switchyard.example"]  # type: ignore[attr-defined]
    assert api.error("GET", "/runs", HTTP_HOST="evil.example")[0] == 400


def test_a_defect_is_a_json_500_without_internals(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("orchestrator.engine.describe.run_items", broken)
    status, body = api("GET", "/runs")
    assert (status, body["error"]["code"]) == (500, "internal")
    assert "secret" not in body["error"]["message"]


def test_a_field_of_several_types_and_a_bad_key_are_named_plainly(api: Caller) -> None:
    start = {"workflow": "a", "subject_id": "x"}
    assert api.error("POST", "/runs", {**start, "deadline": True})[2] == "deadline"
    assert api.error("POST", "/runs", {**start, "labels": {"": "x"}})[2] == "labels."
    assert api.error("PATCH", "/topics/gpu", {"limit": "2"})[2] == "limit"


def test_head_answers_as_get_does_without_the_body(api: Caller) -> None:
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {api.tokens['viewer']}"}
    full = api.client.get("/api/v1/runs", **bearer)
    head = api.client.head("/api/v1/runs", **bearer)
    assert (head.status_code, head.content) == (200, b"")
    assert head["Content-Length"] == str(len(full.content))
    assert api.client.head("/api/v1/runs").status_code == 401
