"""Starting a run from the page, and running an old one again."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from orchestrator.models import AuditRecord, Run
from tests.dashboard.conftest import SignIn
from tests.harness.factory import definition, make, step_spec, workflow_spec

pytestmark = pytest.mark.django_db
PATH = "/runs/new/"


@pytest.fixture
def operator(sign_in: SignIn) -> Client:
    definition(workflow_spec("small", 2, [step_spec("a", [])]))
    return sign_in("operator")


def fields(html: str) -> dict[str, str]:
    """The hidden fields and texts of the form."""
    found = dict(re.findall(r'name="(once|from)" value="([^"]*)"', html))
    for name, text in re.findall(r'<textarea[^>]*name="(\w+)"[^>]*>([^<]*)</textarea>', html):
        found[name] = text.replace("&quot;", '"').replace("&#x27;", "'")
    return found


def form(client: Client, **given: str) -> dict[str, str]:
    return fields(client.get(PATH).content.decode()) | {"workflow": "small", "subject_id": "s-1"} | given


def test_a_run_is_started_once_however_often_it_is_sent(operator: Client) -> None:
    given = form(operator, input='{"n": [1, 2]}', labels="tier: gold\n\nmail: ann@example.com", deadline="2h",
                 delay="5m", version="2", reason="by hand")  # fmt: skip
    first = operator.post(PATH, given)
    run = Run.objects.get()
    assert first["Location"] == f"/runs/{run.id}/"
    again = operator.post(PATH, given, follow=True)
    assert again.redirect_chain == [(f"/runs/{run.id}/", 302)]
    assert b"has started a run already" in again.content
    assert Run.objects.count() == 1
    assert (run.workflow, run.version, run.subject_id, run.input) == ("small", 2, "s-1", {"n": [1, 2]})
    assert run.labels == {"tier": "gold", "mail": "ann@example.com"}
    assert (run.deadline_seconds, run.submitted_by, run.started_at) == (7200, "operator", None)
    record = AuditRecord.objects.get(action="submit")
    assert (record.run_id, record.actor, record.role, record.reason) == (run.id, "operator", "operator", "by hand")


def test_the_same_form_with_other_content_starts_nothing_and_then_another(operator: Client) -> None:
    given = form(operator)
    operator.post(PATH, given)
    refused = operator.post(PATH, given | {"subject_id": "s-2"})
    assert refused.status_code == 409
    assert b"has started a run already, with other content" in refused.content
    assert Run.objects.count() == 1
    operator.post(PATH, given | {"subject_id": "s-2"} | fields(refused.content.decode()))
    assert Run.objects.count() == 2


def test_a_key_of_ones_own_leads_to_the_same_run(operator: Client) -> None:
    for _ in range(2):
        operator.post(PATH, form(operator, idempotency_key="k-1"))
    assert Run.objects.get().idempotency_key == "k-1"
    refused = operator.post(PATH, form(operator, idempotency_key="k-1", subject_id="other"))
    assert refused.status_code == 409
    assert b'id="idempotency_key-e"' in refused.content


@pytest.mark.parametrize(
    ("given", "at", "says"),
    [
        ({"workflow": ""}, "workflow", "Choose a workflow"),
        ({"workflow": "nope"}, "workflow", "nope"),
        ({"version": "x"}, "version", "whole number"),
        ({"version": "99"}, "version", "99"),
        ({"subject_id": "  "}, "subject_id", "Say what"),
        ({"subject_id": "a\x00b"}, "subject_id", "NUL"),
        ({"subject_id": "x" * 501}, "subject_id", "501"),
        ({"input": "{"}, "input", "not JSON"),
        ({"input": '{"a": 1, "a": 2}'}, "input", "twice"),
        ({"input": '{"a": NaN}'}, "input", "NaN is not JSON"),
        ({"input": "[1]"}, "input", "must be an object"),
        ({"input": json.dumps({"a": "x" * 1_100_000})}, "input", "is the most"),
        ({"input": '{"a": "\\ud800"}'}, "input", ""),
        ({"labels": "tier"}, "labels", "key: value"),
        ({"labels": "a: 1\na: 2"}, "labels", "second time"),
        ({"deadline": "soon"}, "deadline", "is not a duration"),
        ({"delay": "99999d"}, "delay", "ten years"),
    ],
)
def test_what_cannot_be_read_is_told_at_the_field(operator: Client, given: dict[str, str], at: str, says: str) -> None:
    answer = operator.post(PATH, form(operator) | given)
    html = answer.content.decode()
    assert 400 <= answer.status_code < 500
    assert "No run was started" in html
    told = html.split(f'id="{at}-e"')[1].split("</p>")[0]
    assert says in told
    assert not Run.objects.exists()
    assert not AuditRecord.objects.filter(action="submit").exists()


def test_run_again_takes_over_what_is_masked_and_leaves_the_old_run_alone(operator: Client) -> None:
    old = make("done", input={"db": {"password": "s3cr3t-X"}, "url": "//u:s3cr3t-Y@h/x", "n": 1},
               labels={"token": "s3cr3t-Z", "tier": "gold"})  # fmt: skip
    html = operator.get(f"{PATH}?from={old.id}").content.decode()
    assert "s3cr3t" not in html
    given = fields(html)
    edited = json.loads(given["input"]) | {"n": 2}
    answer = operator.post(PATH, given | {"workflow": old.workflow, "subject_id": old.subject_id,
                                          "input": json.dumps(edited)})  # fmt: skip
    run = Run.objects.exclude(pk=old.pk).get()
    assert answer["Location"] == f"/runs/{run.id}/"
    assert run.input == {"db": {"password": "s3cr3t-X"}, "url": "//u:s3cr3t-Y@h/x", "n": 2}
    assert run.labels == {"token": "s3cr3t-Z", "tier": "gold"}
    before = Run.objects.get(pk=old.pk)
    assert (before.state, before.updated_at) == (old.state, old.updated_at)
    page = operator.get(f"/runs/{run.id}/").content.decode()
    assert f"once more, from run {old.id}" in page
    assert "s3cr3t" not in page


def test_secrets_are_not_taken_over_into_another_workflow_or_place(operator: Client) -> None:
    old = make("done", input={"password": "s3cr3t-X"}, labels={})
    given = fields(operator.get(f"{PATH}?from={old.id}").content.decode())
    for changed in ({"workflow": "small"}, {"workflow": old.workflow, "input": '{"note": "[masked]"}'}):
        answer = operator.post(PATH, given | {"subject_id": "s"} | changed)
        assert answer.status_code == 422
        assert b"write the value itself" in answer.content
    assert Run.objects.count() == 1


@pytest.mark.parametrize("wanted", ["01890000-0000-7000-8000-000000000000", "abc", "\x00"])
def test_an_old_run_that_is_gone_is_told(operator: Client, wanted: str) -> None:
    html = operator.get(PATH, {"from": wanted}).content.decode()
    assert "older than the retention" in html


def test_who_may(sign_in: SignIn, operator: Client) -> None:
    given = form(operator)
    for role in ("viewer", "support", ""):
        client = sign_in(role)
        assert client.get(PATH).status_code == 403
        assert client.post(PATH, given).status_code == 403
        if role:
            assert PATH not in client.get("/runs/").content.decode()
    assert PATH in operator.get("/runs/").content.decode()
    assert not Run.objects.exists()


def test_without_a_workflow_it_says_how_to_publish_one(sign_in: SignIn) -> None:
    assert b"No workflow takes new runs" in sign_in("operator").get(PATH).content


def test_the_run_page_links_here(sign_in: SignIn) -> None:
    run = make("failed")
    link = f"{PATH}?from={run.id}"
    assert link in sign_in("operator").get(f"/runs/{run.id}/").content.decode()
    assert link not in sign_in("support").get(f"/runs/{run.id}/").content.decode()


def test_hostile_text_is_shown_as_text(operator: Client) -> None:
    bad: dict[str, Any] = dict.fromkeys(("workflow", "version", "subject_id", "input", "labels"), "</textarea><script>")
    html = operator.post(PATH, form(operator) | bad).content.decode()
    assert "</textarea><script>" not in html
