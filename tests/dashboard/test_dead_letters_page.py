"""Dead letters: together by cause, and replay and discard with a role, a reason and a token."""

import pytest
from django.test import Client

from orchestrator.core.actor import require
from orchestrator.core.errors import Conflict
from orchestrator.engine import operate
from orchestrator.models import DeadLetter
from tests.harness.factory import make


@pytest.fixture
def calls(monkeypatch):
    """What reached the engine; a second call for the same dead letter is refused."""
    seen = []

    def record(verb):
        def act(dead_letter, actor, reason):
            require(actor, "operator", reason)
            if (verb, dead_letter) in [call[:2] for call in seen]:
                raise Conflict(f"dead letter {dead_letter} is not open")
            seen.append((verb, dead_letter, actor.name, actor.role, reason))

        return act

    monkeypatch.setattr(operate, "replay_dead_letter", record("replay"))
    monkeypatch.setattr(operate, "discard_dead_letter", record("discard"))
    return seen


def test_alike_failures_stand_together(viewer):
    make("failed")
    make("failed")
    make("partial")
    html = viewer.get("/dead-letters/").content.decode()
    assert "4 failures wait for somebody, in 2 incidents; 3 have one cause" in html
    assert "3 × OSError" in html
    assert "1 × PermissionError" in html


def test_one_cause_and_closed_ones(viewer):
    make("partial")
    other = DeadLetter.objects.get(step="delete_rendition")
    html = viewer.get("/dead-letters/", {"fingerprint": other.fingerprint}).content.decode()
    table = html.split("<tbody>")[1]
    assert "delete_rendition" in table
    assert "of transcode" not in table
    DeadLetter.objects.update(state="discarded", note="known fault")
    assert "No failure waits for anybody." in viewer.get("/dead-letters/").content.decode()
    assert "known fault" in viewer.get("/dead-letters/?state=any").content.decode()


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_an_operator_acts_with_a_reason(sign_in, calls, verb):
    make("failed")
    letter = DeadLetter.objects.get()
    answer = sign_in("operator").post(f"/dead-letters/{verb}/", {"id": letter.pk, "reason": "disk is back"})
    assert (answer.status_code, answer["Location"]) == (302, "/dead-letters/")
    assert calls == [(verb, letter.pk, "operator", "operator", "disk is back")]


def test_several_at_once_tell_what_could_not_be_done(sign_in, calls):
    client = sign_in("operator")
    page = client.post("/dead-letters/replay/", {"id": [7, 8, 7], "reason": "again"}, follow=True)
    html = page.content.decode()
    assert "2 dead letters replayed." in html
    assert "dead letter 7 is not open" in html


def test_no_reason_no_action(sign_in, calls):
    page = sign_in("operator").post("/dead-letters/replay/", {"id": 1, "reason": "  "}, follow=True)
    assert "say why" in page.content.decode()
    assert calls == []


@pytest.mark.parametrize("role", ["viewer", "support", ""])
def test_others_may_not(sign_in, calls, role):
    assert sign_in(role).post("/dead-letters/replay/", {"id": 1, "reason": "x"}).status_code == 403
    assert calls == []


def test_viewers_see_no_buttons(viewer):
    make("failed")
    assert "Replay…" not in viewer.get("/dead-letters/").content.decode()


def test_it_takes_a_token(sign_in, calls):
    client: Client = sign_in("operator", enforce_csrf_checks=True)
    assert client.post("/dead-letters/replay/", {"id": 1, "reason": "x"}).status_code == 403
    assert calls == []


def test_it_takes_a_post(sign_in, calls):
    assert sign_in("operator").get("/dead-letters/replay/").status_code == 405


@pytest.mark.parametrize("given", ["x", "1 or 1=1", "-1", "9" * 40, "\x00"])
def test_bad_numbers_are_told(sign_in, calls, given):
    page = sign_in("operator").post("/dead-letters/discard/", {"id": given, "reason": "x"}, follow=True)
    assert "is not the number of a dead letter" in page.content.decode()
    assert calls == []


def test_it_leads_back_but_not_elsewhere(sign_in, calls):
    client = sign_in("operator")
    data = {"id": 1, "reason": "x"}
    assert client.post("/dead-letters/replay/", {**data, "back": "/dead-letters/?state=any"})["Location"] == (
        "/dead-letters/?state=any"
    )
    assert client.post("/dead-letters/replay/", {**data, "back": "https://evil.example/"})["Location"] == (
        "/dead-letters/"
    )


@pytest.mark.parametrize("query", ["?cursor=zz", "?state=lost", "?fingerprint=%00", "?workflow=%00"])
def test_a_bad_address_is_no_error(viewer, query):
    make("failed")
    assert viewer.get(f"/dead-letters/{query}").status_code == 200
