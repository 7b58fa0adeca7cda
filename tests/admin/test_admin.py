"""Django's admin over the record: every page opens, cheaply and masked; nothing is edited; actions ask why."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.admin.actions import MAX_ITEMS
from orchestrator.core.actor import ENGINE, ROLES
from orchestrator.engine.tokens import create_token
from orchestrator.models import ApiToken, AuditRecord, Beat, DeadLetter, Outbox, Pause, Run, Schedule, Step, Topic
from tests.harness import factory

MODELS = [model for model in admin.site._registry if model._meta.app_label == "orchestrator"]
#: Session, user and groups, count, rows, and what filters offer.
MAX_QUERIES = 9


def sign_in(role: str, staff: bool = True) -> Client:
    user = User.objects.create_user(f"user-{role}", is_staff=staff)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def data(db: None) -> dict[str, Run]:
    runs = {stage: factory.make(stage, subject=f"vid-{stage}") for stage in factory.STAGES if stage != "wide"}
    create_token("ci", "operator", ENGINE)
    Topic.objects.create(name="gpu", limit=2)
    Beat.objects.create(name="dispatcher")
    queued = runs["queued"]
    Outbox.objects.create(run_id=queued.pk, definition_id=queued.definition_id, step="probe", queue="media-light")
    Pause.objects.create(kind="queue", name="default", reason="rest", actor="mara", until=queued.updated_at)
    Schedule.objects.create(workflow="video-upload", cron="0 3 * * *", subject="nightly", last_run=runs["done"])
    return runs


def test_every_model_is_registered() -> None:
    from orchestrator import models

    assert {model.__name__ for model in MODELS} == set(models.__all__)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_lists_and_pages_open_with_few_queries(data: dict[str, Run], model: Any) -> None:
    client = sign_in("admin")
    base = reverse(f"admin:orchestrator_{model._meta.model_name}_changelist")
    for address in (base, f"{base}?q=vid", f"{base}?q=%27%22%3Cb%3E"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        assert len(queries) <= MAX_QUERIES, [q["sql"] for q in queries]
    row = model._default_manager.first()
    if row is not None:
        change = reverse(f"admin:orchestrator_{model._meta.model_name}_change", args=[row.pk])
        with CaptureQueriesContext(connection) as queries:
            page = client.get(change)
        assert page.status_code == 200
        assert len(queries) <= MAX_QUERIES, [q["sql"] for q in queries]
        assert client.post(change, {}).status_code == 403
        assert client.post(f"{base}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.get(f"{base}add/").status_code == 403


def test_a_list_costs_the_same_whatever_its_length(data: dict[str, Run]) -> None:
    client = sign_in("admin")

    def cost(address: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        return len(queries)

    lists = ("run", "step", "compensation", "attempt", "deadletter")
    addresses = [reverse(f"admin:orchestrator_{name}_changelist") for name in lists]
    before = [cost(address) for address in addresses]
    for n in range(5):
        factory.make("partial", subject=f"more-{n}")
    assert [cost(address) for address in addresses] == before


def test_secrets_are_masked_and_markup_is_text(data: dict[str, Run]) -> None:
    client = sign_in("admin")
    nasty = {"type": "E", "message": "<script>x</script> //u:s3cr3t@h/", "traceback": "password=s3cr3t {{7*7}}"}
    letter = DeadLetter.objects.get(run=data["failed"])
    DeadLetter.objects.filter(pk=letter.pk).update(error=nasty)
    Step.objects.filter(pk=letter.step_row_id).update(error=nasty)
    for address in (
        reverse("admin:orchestrator_run_change", args=[data["failed"].pk]),
        reverse("admin:orchestrator_deadletter_changelist"),
        reverse("admin:orchestrator_deadletter_change", args=[letter.pk]),
        reverse("admin:orchestrator_step_change", args=[letter.step_row_id]),
    ):
        text = client.get(address).content.decode()
        assert "s3cr3t" not in text
        assert "<script>x" not in text
    token = client.get(reverse("admin:orchestrator_apitoken_change", args=[ApiToken.objects.get().pk])).content.decode()
    assert ApiToken.objects.get().token_hash not in token


@pytest.mark.parametrize("role", ROLES)
def test_roles(data: dict[str, Run], role: str) -> None:
    client = sign_in(role)
    runs = reverse("admin:orchestrator_run_changelist")
    page = client.get(runs).content.decode()
    assert ("Cancel runs" in page) == (role in ("operator", "admin"))
    tokens = client.get(reverse("admin:orchestrator_apitoken_changelist"))
    assert tokens.status_code == (200 if role == "admin" else 403)
    chosen = {"action": "cancel", "_selected_action": [str(data["queued"].pk)], "confirmed": "yes", "reason": "x"}
    client.post(runs, chosen)
    data["queued"].refresh_from_db()
    assert (data["queued"].cancel_requested_at is not None) == (role in ("operator", "admin"))


def test_without_a_role_or_without_staff_nothing_is_seen(data: dict[str, Run]) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(reverse("admin:orchestrator_run_changelist")).status_code == 403
    assert sign_in("admin", staff=False).get(reverse("admin:orchestrator_run_changelist")).status_code == 302
    assert Client().get(reverse("admin:orchestrator_run_changelist")).status_code == 302


def act(client: Client, model: str, action: str, rows: list[Any], **values: str) -> Any:
    address = reverse(f"admin:orchestrator_{model}_changelist")
    return client.post(
        address, {"action": action, "_selected_action": [str(row.pk) for row in rows], **values}, follow=True
    )


def test_cancel_shows_what_will_be_undone_and_asks_why(data: dict[str, Run]) -> None:
    client = sign_in("operator")
    rows = [data["mid_fan_out"], data["done"]]
    page = act(client, "run", "cancel", rows)
    text = page.content.decode()
    assert "delete_rendition" in text
    assert "is done already" in text
    assert "<script" not in text.split('id="content"')[1]
    empty = act(client, "run", "cancel", rows, confirmed="yes", reason=" ")
    assert "This field is required" in empty.content.decode()
    data["mid_fan_out"].refresh_from_db()
    assert data["mid_fan_out"].cancel_requested_at is None
    done = act(client, "run", "cancel", rows, confirmed="yes", reason="customer left")
    said = [str(message) for message in done.context["messages"]]
    assert "1 cancelled." in said
    assert any("done already" in message for message in said)
    record = AuditRecord.objects.get(run=data["mid_fan_out"], action="cancel")
    assert (record.actor, record.role, record.reason) == ("user-operator", "operator", "customer left")


def test_retry_replay_discard_revoke(data: dict[str, Run]) -> None:
    client = sign_in("admin")
    assert "Executed again: transcode[480p]" in act(client, "run", "retry", [data["failed"]]).content.decode()
    act(client, "run", "retry", [data["failed"]], confirmed="yes", reason="more memory")
    data["failed"].refresh_from_db()
    assert data["failed"].state == "running"
    letters = list(DeadLetter.objects.filter(run=data["partial"], step="transcode"))
    act(client, "deadletter", "replay", letters, confirmed="yes", reason="more memory")
    assert DeadLetter.objects.get(pk=letters[0].pk).state == "replayed"
    undo = list(DeadLetter.objects.filter(run=data["partial"]).exclude(step="transcode"))
    act(client, "deadletter", "discard", undo, confirmed="yes", reason="deleted by hand")
    assert DeadLetter.objects.get(pk=undo[0].pk).state == "discarded"
    act(client, "apitoken", "revoke", list(ApiToken.objects.all()), confirmed="yes", reason="rotated")
    assert ApiToken.objects.get().revoked_at is not None


def test_an_action_takes_a_bounded_number(data: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.admin.actions.MAX_ITEMS", 1)
    assert MAX_ITEMS == 200
    page = act(sign_in("operator"), "run", "cancel", [data["queued"], data["delayed"]], confirmed="yes", reason="x")
    assert [str(message) for message in page.context["messages"]] == ["Choose 1 at most; nothing was changed."]
    assert not Run.objects.filter(subject_id__in=["vid-queued", "vid-delayed"], cancel_requested_at__isnull=False)


def test_links_lead_to_the_dashboard(data: dict[str, Run]) -> None:
    client = sign_in("viewer")
    for model in ("run", "step", "deadletter"):
        text = client.get(reverse(f"admin:orchestrator_{model}_changelist")).content.decode()
        assert reverse("run", args=[data["failed"].pk]) in text
