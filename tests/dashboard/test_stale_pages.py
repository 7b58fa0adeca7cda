"""A form of a page that has gone out of date has no effect, and says so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from orchestrator.core.actor import Actor
from orchestrator.engine import operate
from orchestrator.models import AuditRecord, DeadLetter, Run, Step
from tests.dashboard.conftest import SignIn
from tests.harness.factory import make

pytestmark = pytest.mark.django_db
MARA = Actor("mara", "operator", frozenset({"editors"}))


def form(client: Client, path: str, action: str) -> dict[str, str]:
    """The hidden fields of the form that posts there, as a browser sends them."""
    html = client.get(path).content.decode()
    one = next(part for part in html.split("<form")[1:] if f'action="{action}"' in part).split("</form>")[0]
    return dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', one))


def acts(run: Run) -> list[str]:
    return list(
        AuditRecord.objects.filter(run=run)
        .exclude(actor="engine")
        .exclude(action="submit")
        .order_by("id")
        .values_list("action", flat=True)
    )


def fails_again(run: Run) -> None:
    """As the engine leaves a run that was retried and has failed in the same place."""
    Run.objects.filter(pk=run.pk).update(state="failed", stop="failure", pending=0, finished_at=timezone.now())


def test_a_retry_asked_for_before_somebody_elses(sign_in: SignIn) -> None:
    run, client = make("failed", subject="vid-1"), sign_in("operator")
    path = f"/runs/{run.id}/retry/"
    sent = form(client, path, path) | {"reason": "more memory"}
    assert sent["seen"]
    operate.retry_run(run.pk, MARA, "first")
    Step.objects.filter(run=run).exclude(state__in=("done", "skipped")).delete()
    fails_again(run)
    answer = client.post(path, sent)
    assert answer.status_code == 409
    assert "This page was out of date: the run has changed since it was shown." in answer.content.decode()
    assert acts(run) == ["retry"], "the first one's alone"
    assert Run.objects.get(pk=run.pk).state == "failed"
    again = form(client, path, path) | {"reason": "more memory"}
    assert again["seen"] != sent["seen"]
    assert client.post(path, again).status_code == 302
    assert acts(run) == ["retry", "retry"]


@pytest.mark.parametrize("verb", ["cancel", "extend"])
def test_a_run_that_moves_by_itself_can_still_be_acted_on(sign_in: SignIn, verb: str) -> None:
    run, client = make("mid_fan_out", subject="vid-2"), sign_in("operator")
    path = f"/runs/{run.id}/{verb}/"
    sent = form(client, path, path) | {"reason": "x", "deadline": "3h"}
    Run.objects.filter(pk=run.pk).update(updated_at=timezone.now(), current_step="package")
    assert client.post(path, sent).status_code == 302
    assert acts(run) == [verb]


def test_twice_the_same_form_extends_once(sign_in: SignIn) -> None:
    run, client = make("mid_fan_out", subject="vid-3"), sign_in("operator")
    path = f"/runs/{run.id}/extend/"
    sent = form(client, path, path) | {"reason": "x", "deadline": "3h"}
    assert [client.post(path, sent).status_code for _ in range(2)] == [302, 409]
    assert acts(run) == ["extend"]


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_a_dead_letter_that_has_failed_again_since(sign_in: SignIn, verb: str) -> None:
    run, client = make("failed", subject="vid-4"), sign_in("operator")
    letter = DeadLetter.objects.get(run=run)
    sent = form(client, "/dead-letters/", f"/dead-letters/{verb}/") | {"reason": "x"}
    assert sent["id"] == str(letter.pk)
    DeadLetter.objects.filter(pk=letter.pk).update(count=2, last_at=timezone.now())
    answer = client.post(f"/dead-letters/{verb}/", sent, follow=True)
    assert "it has failed again since this was shown" in answer.content.decode()
    assert (DeadLetter.objects.get(pk=letter.pk).state, acts(run)) == ("open", [])
    client.post(f"/dead-letters/{verb}/", form(client, "/dead-letters/", f"/dead-letters/{verb}/") | {"reason": "x"})
    assert DeadLetter.objects.get(pk=letter.pk).state != "open"


def test_an_approval_of_an_earlier_round(sign_in: SignIn) -> None:
    run, client = make("approving", subject="vid-5"), sign_in("admin")
    step = Step.objects.get(run=run, waiting_for="approval")
    action = f"/steps/{step.pk}/approve/"
    sent: dict[str, Any] = form(client, f"/runs/{run.id}/?step={step.step}", action) | {"reason": "x"}
    Run.objects.filter(pk=run.pk).update(retries=1)
    answer = client.post(action, sent, follow=True)
    assert "the step has been made ready again since it was shown" in answer.content.decode()
    assert Step.objects.get(pk=step.pk).state == "waiting"
    client.post(action, form(client, "/approvals/", action) | {"reason": "x"})
    assert Step.objects.get(pk=step.pk).state == "done"
