"""More time, a longer hold, a note, settling an undo, a link for the customer: each asks first, on its own page."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from dashboard.shared_link import BadLink, make_token, read_token
from orchestrator.core.fingerprint import fingerprint
from orchestrator.core.states import RunState, Undo
from orchestrator.models import AuditRecord, DeadLetter, Run, Step
from tests.dashboard.conftest import SignIn
from tests.harness import factory
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


def held(**run: object) -> Run:
    """A failed run that waits for an operator before its undo."""
    build = factory._failing(**run)
    build.run.state, build.run.compensation, build.run.hold_until = RunState.COMPENSATING, Undo.PENDING, build.at(-1500)
    return build.save()


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def stage(name: str) -> Run:
    return held() if name == "held" else make(name)


#: verb, least role, a stage that allows it, one that does not, what the form sends.
CHANGES = [
    ("extend", "operator", "retrying", "done", {"deadline": "3h"}),
    ("hold", "operator", "held", "failed", {"until": "2h"}),
    ("note", "support", "done", None, {}),
    ("settle", "admin", "partial", "failed", {}),
    ("share", "support", "retrying", None, {"for": "7d"}),
]


@pytest.mark.parametrize(("verb", "least", "good", "bad", "given"), CHANGES)
def test_each_is_offered_where_it_is_allowed_and_refused_elsewhere(
    verb: str, least: str, good: str, bad: str | None, given: dict[str, str], sign_in: SignIn
) -> None:
    run = stage(good)
    path = f"/runs/{run.id}/{verb}/"
    below = {"support": "viewer", "operator": "support", "admin": "operator"}[least]
    low, client = sign_in(below), sign_in(least)
    assert path not in text(low, f"/runs/{run.id}/")
    assert low.get(path).status_code == 403
    assert low.post(path, given | {"reason": "x"}).status_code == 403
    assert path in text(client, f"/runs/{run.id}/")
    assert 'name="reason"' in text(client, path)
    assert client.post(path, given | {"reason": " "}).status_code == 422
    assert not AuditRecord.objects.filter(action=verb).exists()
    if bad:
        other = stage(bad)
        other_path = f"/runs/{other.id}/{verb}/"
        assert other_path not in text(client, f"/runs/{other.id}/")
        refused = client.post(other_path, given | {"reason": "x"})
        assert refused.status_code == 409
        assert b"Nothing was changed" in refused.content
    answer = client.post(path, given | {"reason": "by the book"}, follow=True)
    assert answer.status_code == 200
    entry = AuditRecord.objects.get(action=verb)
    assert (entry.actor, entry.role, entry.reason, entry.run_id) == (least, least, "by the book", run.id)
    assert client.get(f"/runs/{uuid.uuid4()}/{verb}/").status_code == 404


def test_the_deadline_and_the_hold_move(sign_in: SignIn) -> None:
    client, late, waits = sign_in("operator"), make("overdue"), held(subject="held")
    client.post(f"/runs/{late.id}/extend/", {"deadline": "3h", "reason": "x"})
    deadline = Run.objects.get(pk=late.pk).deadline_at
    assert deadline and timedelta(hours=2.9) < deadline - timezone.now() < timedelta(hours=3.1)
    client.post(f"/runs/{waits.id}/hold/", {"until": "2h", "reason": "x"})
    until = Run.objects.get(pk=waits.pk).hold_until
    assert until and timedelta(hours=1.9) < until - timezone.now() < timedelta(hours=2.1)


@pytest.mark.parametrize("given", ["", "soon", "2020-01-01T00:00:00Z", "99999999999d", "x" * 200, "\x00"])
def test_a_time_that_cannot_be_read_is_told_at_the_field(sign_in: SignIn, given: str) -> None:
    client, run = sign_in("operator"), make("retrying")
    refused = client.post(f"/runs/{run.id}/extend/", {"deadline": given, "reason": "x"})
    assert refused.status_code == 422
    assert 'name="deadline"' in refused.content.decode()
    assert 'aria-invalid="true"' in refused.content.decode()
    assert Run.objects.get().deadline_at == run.deadline_at


def test_settling_clears_the_mark_and_says_what_was_done(sign_in: SignIn) -> None:
    client, run = sign_in("admin"), make("partial")
    page = text(client, f"/runs/{run.id}/settle/")
    assert "delete_rendition of 720p" in page
    assert "bucket is sealed" in page
    letter = DeadLetter.objects.get(run=run, step="delete_rendition")
    client.post(f"/runs/{run.id}/settle/", {"reason": "deleted in the console", "letter": str(letter.pk)})
    letter.refresh_from_db()
    assert (letter.state, letter.note) == ("settled", "deleted in the console")
    assert Run.objects.get().compensation == "done"
    assert client.post(f"/runs/{run.id}/settle/", {"reason": "again"}).status_code == 409


def test_force_says_what_it_leaves_undone(sign_in: SignIn) -> None:
    client = sign_in("operator")
    page = text(client, f"/runs/{make('compensating').id}/cancel/?force=1")
    assert "Killed, and stays not undone" in page
    assert "Comes after it all the same" in page
    assert "purge_cdn" in page
    page = text(client, f"/runs/{make('mid_fan_out', subject='other').id}/cancel/?force=1")
    assert "Killed at once" in page
    assert "will be skipped" in page


def test_a_held_run_is_undone_now_by_its_cancel(sign_in: SignIn) -> None:
    client, run = sign_in("operator"), held()
    page = text(client, f"/runs/{run.id}/")
    assert "Undo now…" in page
    assert "Hold longer…" in page
    assert "Keep holding" in text(client, f"/runs/{run.id}/cancel/")
    client.post(f"/runs/{run.id}/cancel/", {"reason": "no use"})
    assert Run.objects.get().compensation == "running"


def test_retry_is_not_the_first_thing_to_press_where_others_failed_alike(sign_in: SignIn) -> None:
    client, one = sign_in("operator"), make("failed", subject="one")
    assert 'class="btn primary grow"' in text(client, f"/runs/{one.id}/")
    make("failed", subject="two")
    sign = fingerprint("video-upload", "transcode", "error", factory.ERROR["type"], factory.ERROR["message"])
    DeadLetter.objects.update(fingerprint=sign)
    page = text(client, f"/runs/{one.id}/")
    assert "1 other run" in page
    assert 'class="btn primary grow"' not in page
    assert "Retry…" in page


def test_a_step_that_failed_is_not_shown_as_undone(viewer: Client) -> None:
    run = make("failed")
    Step.objects.filter(run=run, step="transcode").update(undone_at=timezone.now())
    index = [step["id"] for step in run.definition.spec["steps"]].index("transcode")
    letters = run.node_states[:index] + "c" + run.node_states[index + 1 :]
    Run.objects.filter(pk=run.pk).update(node_states=letters)
    titles = re.findall("<title>transcode: ([^<]*)</title>", text(viewer, f"/runs/{run.id}/"))
    assert titles
    assert all(title.startswith("Failed") for title in titles), titles


# The customer's link.


def link_of(client: Client, run: Run, **given: str) -> str:
    answer = client.post(f"/runs/{run.id}/share/", {"for": "7d", "reason": "on the phone"} | given)
    found = re.search(r'value="http://testserver(/s/[^"]+)"', answer.content.decode())
    assert found, answer.content.decode()
    return found[1]


def test_the_link_shows_the_reply_and_nothing_else(sign_in: SignIn) -> None:
    run = make("retrying", input={"token": "s3cr3t"})
    path = link_of(sign_in("support"), run)
    answer = Client().get(path)
    html = answer.content.decode()
    assert answer.status_code == 200
    assert "Converting your video" in html
    shown = html.split("<main")[1]
    for inside in (
        "transcode",
        "OSError",
        "media",
        "video-upload",
        str(run.id),
        run.subject_id,
        "s3cr3t",
        "Switchyard",
    ):
        assert inside not in shown
    assert answer["Cache-Control"] == "no-store"
    assert answer["Referrer-Policy"] == "no-referrer"
    assert "noindex" in answer["X-Robots-Tag"]
    assert Client().post(path).status_code == 405


def test_the_link_runs_out_and_cannot_be_made_up(sign_in: SignIn) -> None:
    run = make("done")
    token = make_token(run.id, timezone.now() - timedelta(seconds=2))
    gone = Client().get(f"/s/{token}/")
    assert gone.status_code == 410
    assert b"has run out" in gone.content
    good = make_token(run.id, timezone.now() + timedelta(hours=1))
    for bad in ("abc", good[:-1], "x" + good, good.replace(":", ";"), "\u00fc", "%00"):
        assert Client().get(f"/s/{bad}/").status_code == 404
        with pytest.raises(BadLink):
            read_token(bad)
    assert Client().get(f"/s/{make_token(uuid.uuid4(), timezone.now() + timedelta(hours=1))}/").status_code == 404
    assert Client().get(f"/s/{good}/").status_code == 200


@pytest.mark.parametrize("length", ["forever", "0s", "999d", ""])
def test_a_length_that_a_link_cannot_have(sign_in: SignIn, length: str) -> None:
    run = make("done")
    refused = sign_in("support").post(f"/runs/{run.id}/share/", {"for": length, "reason": "x"})
    assert refused.status_code == 422
    assert b"No link was made" in refused.content
    assert not AuditRecord.objects.filter(action="share").exists()
