"""The page of one run: every stage, hostile text, size, 304, roles, and the verbs."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from orchestrator.core.states import RunState, StepState, WaitingFor
from orchestrator.models import AuditRecord, Run, Step
from tests.dashboard.conftest import SignIn
from tests.harness import factory
from tests.harness.factory import Build, make, step_spec, workflow_spec

pytestmark = pytest.mark.django_db
HTMX = {"HTTP_HX_REQUEST": "true"}


def page(client: Client, run: Run, query: str = "", **headers: Any) -> str:
    response = client.get(f"/runs/{run.id}/{query}", **headers)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("stage", factory.STAGES)
def test_every_stage_is_shown_with_few_queries(stage: str, viewer: Client, django_assert_max_num_queries: Any) -> None:
    run = make("wide", total=300) if stage == "wide" else make(stage)
    with django_assert_max_num_queries(30):
        text = page(viewer, run)
    assert "vid-8812" in text
    assert "style=" not in text
    assert re.search(r'<svg class="g lr"', text)
    assert "Traceback (most recent" not in text or stage in ("retrying", "failed", "compensating", "partial", "wide")


@pytest.mark.parametrize("query", ["?step=transcode", "?step=transcode&shard=480p", "?step=nothing", "?show=failed",
                                   "?show=open", "?show=all", "?shards=transcode", "?shards=transcode&state=failed",
                                   "?shards=nothing", "?step=%00&shard=%00&after=x&state=y", "?after=-1"])  # fmt: skip
def test_every_view_of_the_page_works(query: str, viewer: Client) -> None:
    page(viewer, make("failed"), query)


def test_a_wait_that_is_over_stays_on_the_timeline(viewer: Client) -> None:
    run = make("approving")
    Step.objects.filter(run=run, step="approve").update(state="done", waiting_for=None, finished_at=Now())
    lane = re.search(r'<svg class="bars" role="img" aria-label="approve: .*?</svg>', page(viewer, run))
    assert lane and '<line class="wait"' in lane[0]


def test_5000_shards_are_a_small_page(viewer: Client, django_assert_max_num_queries: Any) -> None:
    run = make("wide")
    page(viewer, run)
    with django_assert_max_num_queries(30):
        response = viewer.get(f"/runs/{run.id}/")
    assert len(response.content) < 300_000
    listed = viewer.get(f"/runs/{run.id}/?shards=transcode")
    assert len(listed.content) < 500_000
    assert listed.content.count(b"data-row") == 100
    assert b"after=99" in listed.content


def test_shards_can_be_narrowed_and_paged(viewer: Client) -> None:
    run = make("wide", total=300)
    assert page(viewer, run, "?shards=transcode&state=retry").count("data-row") == 10
    second = page(viewer, run, "?shards=transcode&after=99")
    assert "shard-00100" in second
    assert ">shard-00099<" not in second


HOSTILE = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</textarea><script>x</script>", "{{7*7}}",
           "{% debug %}", "\x1b[31mred\x1b[0m", '"><svg onload=alert(1)>']  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(text: str, viewer: Client) -> None:
    error = {"type": text, "message": text, "traceback": f"line\n{text}"}
    spec = workflow_spec("small", 1, [step_spec("a", [], say=text), step_spec("b", ["a"])])
    build = Build(spec, subject=text, input={text: text}, labels={text: text}, idempotency_key=text, submitted_by=text)
    row = build.row("a", StepState.WAITING, waiting_for=WaitingFor.RETRY, ready_at=build.at(-9), attempt=1,
                    note=text, log=text, worker=text)  # fmt: skip
    build.failed_attempts(row, 1, ago=20, secs=1, error=error)
    build.audit("note", actor=text, role="support", reason=text)
    run = build.save()
    for query in ("", "?step=a", "?show=all", "?show=failed"):
        found = page(viewer, run, query)
        if "<" in text:
            assert text not in found
        assert "49" not in re.findall(r">(49)<", found)
    assert "&lt;script&gt;" in found or "<script>" not in text


@pytest.mark.parametrize("shard", ["<b>", "a/b c", "ü" * 300, "\u202egnp.exe", "?step=x&y"])
def test_odd_shards_can_be_opened(shard: str, viewer: Client) -> None:
    spec = workflow_spec("small", 1, [step_spec("a", [], fan_out={"items": [shard], "source": None})])
    build = Build(spec)
    build.running("a", shard, ago=5)
    run = build.save()
    link = re.search(r'href="(\?[^"]*shard=[^"]+)#step"', page(viewer, run))
    assert link
    assert 'id="step"' in page(viewer, run, link[1].replace("&amp;", "&"))


def test_secrets_stay_hidden(viewer: Client) -> None:
    build = Build(input={"db": {"Password": "s3cr3t-X"}}, labels={"token": "s3cr3t-X"})
    error = {"type": "E", "message": "postgresql://u:s3cr3t-X@h/db", "traceback": "//u:s3cr3t-X@h"}
    row = build.row("probe", StepState.WAITING, waiting_for=WaitingFor.RETRY, ready_at=build.at(-9), attempt=1,
                    note="password=s3cr3t-X", log="token=s3cr3t-X", output={"secret": "s3cr3t-X"})  # fmt: skip
    build.failed_attempts(row, 1, ago=20, secs=1, error=error)
    run = build.save()
    for query in ("", "?step=probe", "?show=all"):
        assert "s3cr3t-X" not in page(viewer, run, query)


def test_nothing_changed_is_304_and_a_change_is_not(viewer: Client) -> None:
    run = make("done")
    first = viewer.get(f"/runs/{run.id}/", **HTMX)
    tag = first["HX-PTag"]
    assert b"<html" not in first.content
    assert viewer.get(f"/runs/{run.id}/", HTTP_HX_PTAG=tag, **HTMX).status_code == 304
    AuditRecord.objects.create(run=run, action="note", actor="mara", reason="seen")
    assert viewer.get(f"/runs/{run.id}/", HTTP_HX_PTAG=tag, **HTMX).status_code == 200


def test_an_unknown_run_is_404_and_nothing_but_a_uuid_is_a_run(viewer: Client) -> None:
    assert viewer.get(f"/runs/{uuid.uuid4()}/").status_code == 404
    assert viewer.get("/runs/abc/").status_code == 404


def test_the_signed_out_are_sent_to_sign_in() -> None:
    assert Client().get(f"/runs/{make('done').id}/").status_code == 302


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize("role", ["viewer", "support"])
def test_those_below_operator_see_no_verb_and_are_refused(verb: str, role: str, sign_in: SignIn) -> None:
    client, run = sign_in(role), make("failed" if verb == "retry" else "retrying")
    assert f"/{verb}/" not in page(client, run)
    assert client.get(f"/runs/{run.id}/{verb}/").status_code == 403
    assert client.post(f"/runs/{run.id}/{verb}/", {"reason": "x"}).status_code == 403
    assert Run.objects.get().state == run.state


@pytest.mark.parametrize(
    ("stage", "offered"),
    [("queued", {"cancel"}), ("retrying", {"cancel"}), ("delayed", {"cancel"}), ("compensating", {"cancel"}),
     ("done", set()), ("failed", {"retry"}), ("partial", {"retry"}), ("cancelled", {"retry"})],
)  # fmt: skip
def test_verbs_are_offered_where_the_state_allows_and_refused_elsewhere(
    stage: str, offered: set[str], sign_in: SignIn
) -> None:
    client, run = sign_in("operator"), make(stage)
    text = page(client, run)
    for verb in ("cancel", "retry"):
        url = reverse(f"run-{verb}", args=[run.id])
        assert (url in text) == (verb in offered)
        if verb not in offered:
            for headers in ({}, HTMX):
                refused = client.post(url, {"reason": "test"}, **headers)
                assert refused.status_code == 409
                assert b"Nothing was changed" in refused.content
    assert Run.objects.get().state == run.state


def test_a_cancel_says_first_what_it_undoes_and_changes_nothing(sign_in: SignIn) -> None:
    client, run = sign_in("operator"), make("mid_fan_out")
    text = client.get(f"/runs/{run.id}/cancel/").content.decode()
    assert "Cancel run and undo 2 steps" in text
    assert "Keep running" in text
    assert "delete_rendition" in text
    assert "1 attempt is running" in text
    assert "hx-trigger" not in text
    assert Run.objects.get().stop is None


def test_a_reason_is_needed(sign_in: SignIn) -> None:
    client, run = sign_in("operator"), make("mid_fan_out")
    refused = client.post(f"/runs/{run.id}/cancel/", {"reason": "  "})
    assert refused.status_code == 422
    assert b"Say why" in refused.content
    assert Run.objects.get().stop is None


def test_cancel_is_done_by_a_post_and_leads_back_to_the_run(sign_in: SignIn) -> None:
    client, run = sign_in("operator"), make("queued")
    done = client.post(f"/runs/{run.id}/cancel/", {"reason": "wrong file\x00"})
    assert done.status_code == 302
    assert done["Location"] == f"/runs/{run.id}/"
    assert Run.objects.get().state == RunState.CANCELLED
    record = AuditRecord.objects.get(action="cancel")
    assert (record.actor, record.role) == ("operator", "operator")
    assert "Cancelled by operator" in page(client, run)


def test_retry_is_done_by_a_post(sign_in: SignIn) -> None:
    client, run = sign_in("operator"), make("failed")
    assert "Keeps its result" in client.get(f"/runs/{run.id}/retry/").content.decode()
    done = client.post(f"/runs/{run.id}/retry/", {"reason": "fixed the disk"}, **HTMX)
    assert done["HX-Redirect"] == f"/runs/{run.id}/"
    assert Run.objects.get().state == RunState.RUNNING


def test_retry_from_an_unknown_step_is_refused(sign_in: SignIn) -> None:
    client, run = sign_in("operator"), make("failed")
    assert client.get(f"/runs/{run.id}/retry/?from_step=nothing").status_code == 422
    assert client.get(f"/runs/{run.id}/retry/?from_step=*").status_code == 200
    assert client.post(f"/runs/{run.id}/retry/", {"reason": "x", "from_step": "nothing"}).status_code == 422


def test_a_post_without_token_is_refused(sign_in: SignIn) -> None:
    client, run = sign_in("operator", enforce_csrf_checks=True), make("queued")
    assert client.post(f"/runs/{run.id}/cancel/", {"reason": "x"}).status_code == 403
    assert Run.objects.get().state == RunState.RUNNING


def test_a_workflow_of_1000_steps_is_a_list(viewer: Client) -> None:
    steps = [step_spec(f"s{n}", [f"s{n - 1}"] if n else []) for n in range(1000)]
    build = Build(workflow_spec("long", 1, steps))
    build.running("s0", ago=5)
    text = page(viewer, build.save())
    assert "1000 steps are too many for a picture" in text
    assert len(page(viewer, Run.objects.get(), "?show=all")) < 1_500_000
