"""``dead_letters replay`` and ``discard`` on many: by id or filter, counted first, waited for."""

from __future__ import annotations

import pytest

from orchestrator.engine import operate
from orchestrator.models import BulkOperation, DeadLetter
from tests.cli.test_commands import document, run
from tests.harness import factory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def letters(settings, monkeypatch: pytest.MonkeyPatch) -> list[DeadLetter]:
    monkeypatch.setattr("orchestrator.engine.bulk_work.FIRST_WAIT", 0.2)
    for stage in ("failed", "failed", "partial"):
        factory.make(stage)
    return list(DeadLetter.objects.order_by("id"))


def test_discard_by_filter_and_wait(letters: list[DeadLetter]) -> None:
    seen = document("dead_letters", "discard", "--step", "transcode", "--dry-run")
    assert (seen["total"], seen["eligible"], seen["steps"]) == (3, 3, {"transcode": 3})
    assert BulkOperation.objects.count() == 0
    assert "3 of 3 would be discarded" in run("dead_letters", "discard", "--step", "transcode", "--dry-run")[1]
    asked = ("--step", "transcode", "--workflow", "video-upload", "--cause", "error", "--reason", "known")
    done = document("dead_letters", "discard", *asked, "--wait")
    assert (done["state"], done["done"], done["remaining"]) == ("done", 3, 0)
    assert done["filter"] == {"state": "open", "step": "transcode", "workflow": "video-upload", "cause": "error"}
    assert DeadLetter.objects.filter(state="open").count() == 1


def test_by_id_and_by_fingerprint(letters: list[DeadLetter]) -> None:
    ids = [str(letters[0].pk), str(letters[1].pk), str(letters[0].pk), "999999"]
    done = document("dead_letters", "discard", "--id", *ids[:2], "--id", *ids[2:], "--reason", "known", "--wait")
    assert (done["total"], done["done"], done["skipped"], done["filter"]) == (3, 2, 1, None)
    started = document("dead_letters", "replay", "--fingerprint", letters[2].fingerprint, "--reason", "again")
    assert (started["state"], started["total"], started["done"]) == ("running", 1, 0)


def test_replay_by_filter(letters: list[DeadLetter]) -> None:
    code, out, told = run("dead_letters", "replay", "--workflow", "video-upload", "--reason", "again", "--wait")
    assert code == 0
    assert "3 of 4 dead letters replayed, 1 skipped, 0 failed" in out
    assert "running:" in told or "done:" in told


def test_what_is_refused(letters: list[DeadLetter]) -> None:
    assert run("dead_letters", "replay", "--reason", "x")[0] == 2
    assert "say which" in run("dead_letters", "discard", "--reason", "x")[2]
    assert run("dead_letters", "replay", "--step", "transcode")[0] == 2
    assert run("dead_letters", "replay", "--cause", "gremlins", "--reason", "x")[0] == 2
    assert run("dead_letters", "replay", "1", "--step", "transcode", "--reason", "x")[0] == 2
    assert run("dead_letters", "replay", "--id", "1", "--step", "transcode", "--reason", "x")[0] == 1
    assert BulkOperation.objects.count() == 0


def test_what_could_not_be_done_makes_the_exit_code_1(letters, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(operate, "discard_dead_letter", broken)
    code, _, refusal = run("dead_letters", "discard", "--step", "transcode", "--reason", "x", "--wait")
    assert code == 1
    assert "3 were not done" in refusal
