"""Commands: exit codes, one line of refusal, one JSON document, readable tables."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import CommandParser
from django.utils import timezone

from orchestrator.engine.tokens import hash_token
from orchestrator.models import ApiToken, AuditRecord, DeadLetter, Pause, Run, Topic
from tests.harness import factory

pytestmark = pytest.mark.django_db


def run(*words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr or the refusal) as a shell would see them."""
    out, err = StringIO(), StringIO()
    try:
        call_command(*words, stdout=out, stderr=err)
    except CommandError as refused:
        # Errors of argparse carry no code of ours; from a shell they exit with 2.
        code = refused.returncode if type(refused) is not CommandError else 2
        return code, out.getvalue(), str(refused)
    return 0, out.getvalue(), err.getvalue()


def document(*words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(autouse=True)
def published() -> None:
    factory.definition()


def test_submit() -> None:
    start = ("submit", "video-upload", "--subject", "vid-1", "--input", '{"path": "a.mp4"}', "--key", "k")
    first = document(*start)
    assert (first["workflow"], first["subject_id"], first["state"]) == ("video-upload", "vid-1", "running")
    assert first["submitted_by"].startswith("shell:")
    code, out, err = run(*start)
    assert (code, out.split()[0]) == (0, first["id"])
    assert "this key has been used" in err
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("nope", "--subject", "x"), 1, "no workflow 'nope' is published"),
        (("video-upload", "--subject", "x", "--input", "{"), 2, "--input is not JSON"),
        (("video-upload", "--subject", "x", "--input", "[]"), 1, "must be a JSON object"),
        (("video-upload", "--subject", "x", "--input", '{"a": NaN}'), 1, "not JSON"),
        (("video-upload", "--subject", "x", "--input", '{"a": "\\u0000"}'), 1, "NUL"),
        (("video-upload", "--subject", "x", "--delay", "soon"), 2, "not a duration"),
        (("video-upload", "--subject", "x", "--deadline", "-1h"), 2, "--deadline"),
        (("video-upload", "--subject", " "), 1, "subject_id"),
        (("video-upload", "--subject", "x", "--workflow-version", "99"), 1, "no version 99"),
        (("video-upload",), 2, "--subject"),
        (("video-upload", "--subject", "x", "--colour", "red"), 2, "unrecognized"),
        (("video-upload", "--subject", "x", "--workflow-version", "three"), 2, "invalid int"),
    ],
)
def test_submit_refuses_in_one_line(words: tuple[str, ...], code: int, says: str) -> None:
    got, out, refusal = run("submit", *words)
    assert (got, out) == (code, "")
    assert says in refusal
    assert "\n" not in refusal.strip()
    assert not Run.objects.exists()


def test_runs_list_filter_and_page() -> None:
    for stage in ("queued", "failed", "overdue"):
        factory.make(stage, subject=f"vid-{stage}")
    assert {r["subject_id"] for r in document("runs")["items"]} == {"vid-queued", "vid-failed", "vid-overdue"}
    assert [r["subject_id"] for r in document("runs", "--state", "failed")["items"]] == ["vid-failed"]
    assert [r["subject_id"] for r in document("runs", "--overdue")["items"]] == ["vid-overdue"]
    assert document("runs", "--workflow", "other") == {"items": [], "next_cursor": None}
    page = document("runs", "--limit", "2")
    rest = document("runs", "--limit", "2", "--cursor", page["next_cursor"])
    assert (len(page["items"]), len(rest["items"]), rest["next_cursor"]) == (2, 1, None)
    lines = run("runs")[1].splitlines()
    assert lines[0].startswith("RUN")
    at = lines[0].index("STATE")
    assert all(line[at - 2 : at] == "  " for line in lines)
    assert run("runs", "--state", "broken")[0] == 2
    assert run("runs", "--limit", "0")[0] == 2
    assert run("runs", "--cursor", "garbage")[0] == 1


def test_run_and_where() -> None:
    made = factory.make("retrying", subject="vid 7")
    shown = document("run", str(made.pk))
    assert shown["id"] == str(made.pk)
    assert {"input", "output", "steps", "compensations", "where"} <= set(shown)
    text = run("run", str(made.pk))[1]
    assert "480p" in text
    assert "waiting for retry" in text
    assert "s3cr3t" not in text + json.dumps(shown)
    where = document("where", "vid 7")
    assert set(where) == {"subject_id", "answer", "reply", "runs"}
    assert where["answer"] in run("where", "vid 7")[1].replace("\n", " ") or "480p" in where["answer"]
    assert run("run", "abc")[:2] == (1, "")
    assert run("run", "00000000-0000-0000-0000-000000000000")[0] == 1
    assert run("where", "nobody")[0] == 1


def test_terminals_are_not_driven_by_what_is_printed() -> None:
    factory.make("queued", subject="\x1b[2Jred\nnew line")
    assert "\x1b" not in run("runs")[1]
    assert len(run("runs")[1].splitlines()) == 2


def test_cancel_and_retry() -> None:
    made = factory.make("queued")
    assert run("cancel", str(made.pk))[0] == 2
    assert run("cancel", str(made.pk), "--reason", " ")[0] == 1
    assert document("cancel", str(made.pk), "--reason", "customer left")["id"] == str(made.pk)
    record = AuditRecord.objects.get(run=made, action="cancel")
    assert (record.reason, record.role) == ("customer left", "admin")
    code, out, refusal = run("cancel", str(made.pk), "--reason", "again", "--json")
    assert (code, json.loads(out)) == (1, {"error": {"code": "conflict", "message": refusal}})
    assert str(made.pk) in refusal
    failed = factory.make("failed")
    preview = document("retry", str(failed.pk), "--dry-run")
    assert preview["dry_run"] is True
    assert "480p" in run("retry", str(failed.pk), "--dry-run")[1]
    assert run("retry", str(failed.pk))[0] == 2
    assert run("retry", str(failed.pk), "--from", "nope", "--reason", "x")[0] == 1
    assert document("retry", str(failed.pk), "--from", "transcode", "--reason", "fixed")["state"] == "running"
    assert run("retry", str(failed.pk), "--reason", "again")[0] == 1


def test_dead_letters() -> None:
    made = factory.make("failed")
    letter = DeadLetter.objects.get(run=made)
    assert [item["id"] for item in document("dead_letters")["items"]] == [letter.pk]
    assert document("dead_letters", "list", "--workflow", "other")["items"] == []
    assert "out of memory" in run("dead_letters", "list")[1]
    assert run("dead_letters", "replay")[0] == 2
    assert run("dead_letters", "discard", str(letter.pk))[0] == 2
    code, out, refusal = run("dead_letters", "discard", str(letter.pk), "999", "--reason", "known", "--json")
    found = json.loads(out)
    assert code == 1
    assert "999" in refusal
    assert [item["state"] for item in found["items"]] == ["discarded"]
    assert [error["code"] for error in found["errors"]] == ["not_found"]
    assert document("dead_letters", "list", "--state", "any")["items"][0]["state"] == "discarded"
    other = DeadLetter.objects.get(run=factory.make("failed", subject="b"))
    assert document("dead_letters", "replay", str(other.pk), "--reason", "fixed")["items"][0]["state"] == "replayed"


def test_topic() -> None:
    assert run("topic", "gpu")[0] == 1
    assert document("topic", "gpu", "3")["limit"] == 3
    assert Topic.objects.get().set_by.startswith("shell:")
    assert "unlimited" in run("topic", "gpu", "none")[1]
    assert document("topic", "gpu", "default")["origin"] == "none"
    assert run("topic", "nope", "default")[0] == 1
    for bad in ("-1", "many", "1.5"):
        assert run("topic", "gpu", bad)[0] == 2
    assert run("topic", "two words", "1")[0] == 1


def test_pause_and_resume() -> None:
    made = document("pause", "queue", "default", "--for", "2h", "--reason", "new disks")
    assert {**made, "until": "", "actor": ""} == {
        "kind": "queue", "name": "default", "until": "", "reason": "new disks", "actor": ""
    }  # fmt: skip
    pause = Pause.objects.get()
    assert 7190 < (pause.until - timezone.now()).total_seconds() <= 7200
    assert made["actor"] == pause.actor and pause.actor.startswith("shell:")
    code, out, _ = run("pause", "workflow", "video-upload", "--reason", "x")
    assert (code, out.splitlines()[0]) == (0, "paused  workflow video-upload")
    assert document("resume", "queue", "default") == {"kind": "queue", "name": "default", "resumed": True}
    assert run("resume", "queue", "default", "--reason", "again")[0] == 1
    assert [r.action for r in AuditRecord.objects.filter(subject="queue default").order_by("id")] == ["pause", "resume"]
    for words, expected in (
        (("queue", "default"), 2),
        (("queue", "default", "--reason", " "), 1),
        (("queue", "default", "--reason", "x", "--for", "soon"), 2),
        (("queue", "default", "--reason", "x", "--for", "0s"), 1),
        (("queue", "nope", "--reason", "x"), 1),
        (("workflow", "nope", "--reason", "x"), 1),
        (("topic", "gpu", "--reason", "x"), 2),
    ):
        code, out, refusal = run("pause", *words)
        assert (code, out) == (expected, ""), words
        assert "\n" not in refusal.strip()


def test_create_token() -> None:
    made = document("create_token", "ci", "--role", "operator")
    assert ApiToken.objects.get(name="ci").token_hash == hash_token(made["token"])
    code, out, refusal = run("create_token", "ci", "--role", "viewer")
    assert (code, out) == (1, "")
    assert "already" in refusal
    assert run("create_token", "x", "--role", "king")[0] == 2
    assert run("create_token", "a b", "--role", "viewer")[0] == 1
    code, out, said = run("create_token", "web", "--role", "viewer")
    assert ApiToken.objects.filter(token_hash=hash_token(out.strip())).exists()
    assert "not shown again" in said


@pytest.mark.parametrize(
    "name",
    ["submit", "runs", "run", "where", "cancel", "retry", "dead_letters", "topic", "create_token", "pause", "resume"],
)
def test_each_has_help_and_json(name: str) -> None:
    from django.core.management import load_command_class

    parser = load_command_class("orchestrator", name).create_parser("manage.py", name)
    assert isinstance(parser, CommandParser)
    assert "--json" in parser.format_help()
    assert parser.description
