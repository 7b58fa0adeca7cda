"""The same preview of a retry on the page, in the API and on the command line."""

from __future__ import annotations

import json
from io import StringIO

from django.core.management import call_command
from django.test import Client

from orchestrator.core.actor import ENGINE
from orchestrator.engine.tokens import create_token
from orchestrator.models import Run, Step
from tests.dashboard.conftest import SignIn
from tests.harness.factory import make


def marked() -> Run:
    """A failed run whose failed shard has called the outside twice, and the one step whose result is kept once."""
    run = make("failed")
    failed = Step.objects.get(run=run, state="failed")
    Step.objects.filter(pk=failed.pk).update(external="charge card\nstore rendition")
    assert Step.objects.filter(run=run, step="captions", state="done").update(external="read source") == 1
    return run


def test_calls_that_will_be_made_again_are_named_everywhere(sign_in: SignIn) -> None:
    run = marked()
    page = sign_in("operator").get(f"/runs/{run.pk}/retry/").content.decode()
    assert "Calls to the outside that will be made again" in page
    assert "charge card" in page and "store rendition" in page and "read source" not in page
    headers = {"HTTP_AUTHORIZATION": f"Bearer {create_token('cli', 'operator', ENGINE)}"}
    answer = Client().post(
        f"/api/v1/runs/{run.pk}/retry", {"dry_run": True}, content_type="application/json", **headers
    )
    api = answer.json()
    assert api["side_effects"] == {"charge card": 1, "store rendition": 1}
    assert [s["side_effects"] for s in api["steps"] if s["side_effects"]] == [["charge card", "store rendition"]]
    out = StringIO()
    call_command("retry", str(run.pk), "--dry-run", "--json", stdout=out)
    assert json.loads(out.getvalue()) == api
    out = StringIO()
    call_command("retry", str(run.pk), "--dry-run", stdout=out)
    assert "Calls to the outside that would be made again: charge card (1), store rendition (1)" in out.getvalue()
    assert Run.objects.get(pk=run.pk).state == "failed"


def test_a_whole_retry_names_those_of_the_finished_steps_too(sign_in: SignIn) -> None:
    page = sign_in("operator").get(f"/runs/{marked().pk}/retry/?from_step=*").content.decode()
    assert "read source" in page and "charge card" in page


def test_where_nothing_was_marked_nothing_is_said(sign_in: SignIn) -> None:
    run = make("failed")
    assert "Calls to the outside" not in sign_in("operator").get(f"/runs/{run.pk}/retry/").content.decode()
    out = StringIO()
    call_command("retry", str(run.pk), "--dry-run", stdout=out)
    assert "none was marked" in out.getvalue()
