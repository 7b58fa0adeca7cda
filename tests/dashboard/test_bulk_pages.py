"""Many at once by the pages: tick or all that match, look at what would be done, say why, watch it, stop and resume."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from orchestrator.core.actor import Actor
from orchestrator.engine import bulk
from orchestrator.engine.find import RunFilters
from orchestrator.engine.find_dead_letters import DeadLetterFilters
from orchestrator.models import AuditRecord, BulkOperation, DeadLetter, Run
from tests.harness.factory import make

OLGA = Actor("olga", "operator")
PREVIEW, START = "/bulk/preview/", "/bulk/start/"


def html(answer: Any) -> str:
    return answer.content.decode()


def fields(page: str) -> dict[str, list[str]]:
    """The hidden fields of the form that starts it."""
    form = page.split(f'action="{START}"')[1].split("</form>")[0]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form):
        found.setdefault(name, []).append(value)
    found.pop("csrfmiddlewaretoken", None)
    return found


def work(rounds: int = 10) -> None:
    for _ in range(rounds):
        BulkOperation.objects.update(due_at="2000-01-01T00:00:00Z", first_until=None)
        bulk.advance(seconds=5)


def test_ticked_runs_are_cancelled_and_no_others(sign_in) -> None:
    """C88: three of a page are ticked, one of them twice, one has ended; a filter that is on does not matter."""
    client: Client = sign_in("operator")
    live = [make("queued", subject=f"vid-{n}") for n in range(5)]
    done = make("done")
    page = html(client.get("/runs/?workflow=video-upload"))
    assert page.count('name="id"') == 6
    assert 'form="bulk"' in page
    ids = [str(live[0].pk), str(live[2].pk), str(live[0].pk), str(done.pk)]
    seen = html(client.post(PREVIEW, {"verb": "cancel", "id": ids}))
    assert "Cancel 2 runs?" in seen
    assert "1 other is in the set but cannot be cancelled now" in seen
    assert BulkOperation.objects.count() == 0
    answer = client.post(START, {**fields(seen), "reason": "wrong file"})
    operation = BulkOperation.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/bulk/{operation.pk}/")
    work()
    assert Run.objects.get(pk=live[0].pk).cancel_requested_at
    assert Run.objects.get(pk=live[2].pk).cancel_requested_at
    assert Run.objects.filter(cancel_requested_at__isnull=False).count() == 2
    page = html(client.get(answer["Location"]))
    assert "2 of 3 runs cancelled, 1 skipped." in page
    assert "there is nothing to cancel" in page
    assert "vid-2" in page


def test_all_that_match(sign_in) -> None:
    client = sign_in("operator")
    make("failed", subject="a")
    make("failed", subject="b")
    make("cancelled", subject="c")
    page = html(client.get("/runs/?state=failed"))
    assert "All 2 that match:" in page
    link = re.search(r'href="(/bulk/preview/\?verb=retry[^"]*)"', page)[1].replace("&amp;", "&")
    seen = html(client.get(link))
    assert "Retry 2 runs?" in seen
    assert "state: failed" in seen
    client.post(START, {**fields(seen), "reason": "fixed"})
    operation = BulkOperation.objects.get()
    assert (operation.total, operation.filter, operation.reason) == (2, {"state": ["failed"]}, "fixed")
    assert "state failed" in html(client.get(f"/bulk/{operation.pk}/"))


def test_steps_are_those_that_failed_and_never_an_undo(db: None) -> None:
    make("failed")
    make("partial")
    make("compensating")
    make("cancelled")
    seen = bulk.preview("retry", RunFilters(workflow="video-upload"))
    assert seen.steps == {"transcode": seen.total}
    assert seen.total == 4
    letters = bulk.preview("replay", DeadLetterFilters(workflow="video-upload"))
    assert letters.steps == {"transcode": 3, "undo of transcode": 1}


def test_without_a_filter_all_is_not_offered(sign_in) -> None:
    make("failed")
    page = html(sign_in("operator").get("/runs/"))
    assert "that match:" not in page
    assert "Those ticked" in page


def test_nothing_ticked_is_told_and_nothing_done(sign_in) -> None:
    client = sign_in("operator")
    make("queued")
    for answer in (client.post(PREVIEW, {"verb": "cancel"}), client.get(PREVIEW, {"verb": "cancel", "state": ""})):
        assert (answer.status_code, answer["Location"]) == (302, "/runs/")
    assert "No run was named, and no filter: nothing was done." in html(client.get("/runs/"))
    for given in ({"verb": "cancel"}, {"verb": "cancel", "workflow": ""}, {"verb": "cancel", "id": ""}):
        answer = client.post(START, {**given, "reason": "x"})
        assert answer.status_code == 422
        assert "Nothing was changed." in html(answer)
    assert client.get(PREVIEW, {"verb": "explode", "q": "x"}).status_code == 422
    assert client.get(PREVIEW, {"verb": "cancel", "state": "lost"}).status_code == 422
    assert BulkOperation.objects.count() == 0


def test_a_cause_is_replayed_after_a_look(sign_in) -> None:
    client = sign_in("operator")
    make("failed")
    make("failed")
    make("partial")
    letter = DeadLetter.objects.filter(step="transcode").first()
    letter.step_row.__class__.objects.filter(pk=letter.step_row_id).update(external="charge the card")
    page = html(client.get("/dead-letters/", {"fingerprint": letter.fingerprint}))
    link = re.search(r'href="(/bulk/preview/\?verb=replay[^"]*)"', page)
    assert "Replay all 3 of this cause…" in page
    seen = html(client.get(link[1].replace("&amp;", "&")))
    assert "Replay 3 dead letters?" in seen
    assert "Calls to the outside that would be made again" in seen
    assert "charge the card" in seen
    refused = client.post(START, {**fields(seen), "reason": " "})
    assert refused.status_code == 422
    assert "Say why" in html(refused)
    assert BulkOperation.objects.count() == 0
    client.post(START, {**fields(seen), "reason": "memory added"})
    assert BulkOperation.objects.get().filter == {"fingerprint": letter.fingerprint, "state": "open"}
    assert AuditRecord.objects.get(action="bulk_replay").reason == "memory added"


def test_stop_and_resume_by_the_page(sign_in) -> None:
    client = sign_in("operator")
    make("failed")
    operation = bulk.start("retry", OLGA, "try", filters=RunFilters(state=("failed",)))
    where = f"/bulk/{operation.pk}/"
    assert "0 of 1 run retried; 1 to go." in html(client.get(where))
    page = html(client.post(f"{where}stop/", follow=True))
    assert "it was stopped with 1 to go" in page
    assert "Resume" in page
    assert "is stopped" in html(client.post(f"{where}stop/", follow=True))
    assert "Resumed." in html(client.post(f"{where}resume/", follow=True))
    assert AuditRecord.objects.filter(action__in=("bulk_stop", "bulk_resume"), actor="operator").count() == 2
    assert client.get(f"{where}stop/").status_code == 405
    assert html(client.get("/bulk/")).count(where) == 1


def test_results_page_by_page_and_by_state(sign_in) -> None:
    client = sign_in("viewer")
    operation = bulk.start("retry", OLGA, "try", ids=[f"x{n}" for n in range(60)])
    work()
    where = f"/bulk/{operation.pk}/"
    page = html(client.get(where))
    assert "x49" in page
    assert "x50<" not in page
    assert "x50" in html(client.get(f"{where}?cursor=50"))
    assert "None of the set is in this state." in html(client.get(f"{where}?state=failed"))
    assert client.get(f"{where}?state=lost").status_code == 200
    assert client.get(f"{where}?cursor=zz&state=%00").status_code == 200
    assert "Stop" not in page.split("<main")[1]


def test_only_what_changed_is_sent_again(sign_in) -> None:
    client = sign_in("operator")
    operation = bulk.start("retry", OLGA, "try", ids=["x"])
    where = f"/bulk/{operation.pk}/"
    first = client.get(where, headers={"HX-Request": "true"})
    assert "<main" not in html(first)
    tag = {"HX-Request": "true", "HX-PTag": first["HX-PTag"]}
    assert client.get(where, headers=tag).status_code in (200, 304)  # it is drawn again every few seconds
    work()
    assert client.get(where, headers=tag).status_code == 200


@pytest.mark.parametrize("role", ["viewer", "support", ""])
def test_roles(sign_in, role) -> None:
    make("failed")
    operation = bulk.start("retry", OLGA, "try", ids=["x"])
    client = sign_in(role)
    assert client.get(PREVIEW, {"verb": "retry", "state": "failed"}).status_code == 403
    assert client.post(START, {"verb": "retry", "state": "failed", "reason": "x"}).status_code == 403
    assert client.post(f"/bulk/{operation.pk}/stop/").status_code == 403
    if role:
        assert client.get(f"/bulk/{operation.pk}/").status_code == 200
        assert "Those ticked" not in html(client.get("/runs/"))
        letter = DeadLetter.objects.get()
        assert "of this cause…" not in html(client.get("/dead-letters/", {"fingerprint": letter.fingerprint}))
    assert BulkOperation.objects.count() == 1


def test_it_takes_a_token(sign_in) -> None:
    operation = bulk.start("retry", OLGA, "try", ids=["x"])
    client = sign_in("operator", enforce_csrf_checks=True)
    for path in (PREVIEW, START, f"/bulk/{operation.pk}/stop/", f"/bulk/{operation.pk}/resume/"):
        assert client.post(path, {"verb": "retry", "id": "x", "reason": "x"}).status_code == 403
    assert BulkOperation.objects.count() == 1


@pytest.mark.parametrize("path", ["/bulk/0190c6a0-0000-7000-8000-000000000000/", "/bulk/x/"])
def test_there_is_none(sign_in, path) -> None:
    assert sign_in("operator").get(path).status_code == 404


def test_there_is_none_to_stop(sign_in) -> None:
    assert sign_in("operator").post("/bulk/0190c6a0-0000-7000-8000-000000000000/stop/").status_code == 404
