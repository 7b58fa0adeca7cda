"""The admin, model by model over its registry: what each list offers, what leads where, and what it costs."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dashboard.admin import base
from dashboard.admin.base import ReadOnlyAdmin
from dashboard.models import SavedView
from orchestrator import models
from orchestrator.core.actor import ENGINE
from orchestrator.engine.tokens import create_token
from tests.harness import factory
from tests.harness.urls import addresses

#: Every model of ours that the admin has; auth's own are Django's.
OURS = [model for model in admin.site._registry if model._meta.app_label in ("orchestrator", "dashboard")]
#: Tables that grow with the work: their lists must stand in an index's order.
LARGE = {
    "Run", "Step", "Compensation", "FanOut", "Attempt", "DeadLetter", "AuditRecord", "BulkItem", "Alert", "Outbox",
    "Rollup", "RollupDelta", "RollupHour", "Lock",
}  # fmt: skip
#: Session, user and groups, count, rows, what filters offer, and the two ends of a date hierarchy.
MAX_QUERIES = 9
every_model = pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)


def sign_in(role: str) -> Client:
    user = User.objects.create_user(f"user-{role}", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    client = Client()
    client.force_login(user)
    return client


def list_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page_of(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[quote(row.pk)])


def admin_of(model: type[Model]) -> ReadOnlyAdmin:
    found = admin.site._registry[model]
    assert isinstance(found, ReadOnlyAdmin)
    return found


@pytest.fixture
def rows(db: None) -> dict[str, models.Run]:
    """A row of every model."""
    runs = {
        stage: factory.make(stage, subject=f"vid-{stage}") for stage in ("queued", "mid_fan_out", "failed", "partial")
    }
    run = runs["queued"]
    create_token("ci", "operator", ENGINE)
    models.Topic.objects.create(name="gpu", limit=2, set_by="mara")
    models.Lock.objects.create(name="video:7")
    models.Beat.objects.create(name="dispatcher")
    models.Outbox.objects.create(run_id=run.pk, definition_id=run.definition_id, step="probe", queue="media-light")
    models.Pause.objects.create(kind="queue", name="default", reason="rest", actor="mara", until=run.updated_at)
    models.Schedule.objects.create(workflow="video-upload", cron="0 3 * * *", subject="nightly", last_run=run)
    models.Alert.objects.create(key="k", run=run, kind="failed")
    models.AuditRecord.objects.create(subject="topic gpu", action="topic", actor="mara", role="operator")
    models.Incident.objects.create(fingerprints=["f"], owner="mara")
    models.Lease.objects.get_or_create(
        name="w",
        defaults={"token": uuid.uuid4(), "host": "h", "pid": 1, "queues": ["default"], "expires_at": timezone.now()},
    )
    operation = models.BulkOperation.objects.create(verb="retry", reason="r", actor="mara", role="operator", total=1)
    models.BulkItem.objects.create(operation=operation, position=0, target=str(run.pk), run_id=run.pk)
    labels = {"workflow": "video-upload", "state": "done", "le": "60.0"}
    metric = "workflow_run_duration_seconds_bucket"
    models.Rollup.objects.create(metric=metric, labels=labels, value=1)
    models.RollupDelta.objects.create(metric=metric, labels=labels, value=1)
    models.RollupHour.objects.create(metric=metric, labels=labels, value=1, hour=timezone.now())
    SavedView.objects.create(name="failed", query="state=failed", owner="mara")
    return runs


def test_every_model_of_ours_is_there() -> None:
    assert {model.__name__ for model in OURS} == {*models.__all__, "SavedView"}


@every_model
def test_a_list_has_columns_search_and_filters_and_a_large_one_no_order_of_its_own(model: type[Model]) -> None:
    found = admin_of(model)
    assert len(found.list_display) >= 2 and "__str__" not in found.list_display
    assert found.search_fields and found.list_filter
    assert found.large == (model.__name__ in LARGE)
    assert not (found.large and found.date_hierarchy), "a hierarchy reads the whole table"
    assert found.show_full_result_count is False
    assert found.show_facets is admin.ShowFacets.NEVER, "counts beside filters read the whole table"
    for chosen in found.list_filter:
        name = chosen if isinstance(chosen, str) else ""
        if name:
            field = model._meta.get_field(name)
            assert field.choices or field.get_internal_type() in ("BooleanField", "DateTimeField"), (
                f"{name}: what can be chosen would be read from every row"
            )


@every_model
def test_lists_filter_search_and_lead_to_the_dashboard(rows: dict[str, models.Run], model: type[Model]) -> None:
    client, address, found = sign_in("admin"), list_of(model), admin_of(model)
    row = model._default_manager.order_by("-pk").first()
    assert row is not None, "the fixture has a row of every model"
    html = client.get(address).content.decode()
    place = found.dashboard(row)
    assert place.startswith("/")
    assert client.get(place).status_code == 200, place
    shown = client.get(page_of(row)).content.decode()
    assert place.replace("&", "&amp;") in shown, "the button above the row"
    assert 'class="viewsitelink"' in shown
    assert f'href="{page_of(row)}' in html
    choices = {f"{address}?{link.split('?', 1)[1]}" for link in _filter_links(html)}
    assert choices, "a list that cannot be narrowed"
    for narrowed in [
        *sorted(choices)[:40],
        f"{address}?q=vid-failed",
        f"{address}?q=%00",
        f"{address}?o=-2",
        f"{address}?p=2",
    ]:
        with CaptureQueriesContext(connection) as asked:
            answer = client.get(narrowed.replace("&amp;", "&"))
        assert answer.status_code == 200, f"{narrowed}: {answer.headers.get('Location', '')}"
        assert len(asked) <= MAX_QUERIES, "\n".join([narrowed, *(query["sql"][-200:] for query in asked)])


def _filter_links(html: str) -> list[str]:
    side = html.split('id="changelist-filter"')[1]
    return [
        part.split('"')[0] for part in side.split('href="')[1:] if part.startswith("?") and len(part.split('"')[0]) > 1
    ]


@every_model
def test_rows_are_the_engines(rows: dict[str, models.Run], model: type[Model]) -> None:
    client = sign_in("admin")
    row = model._default_manager.order_by("-pk").first()
    assert row is not None
    before = model._default_manager.filter(pk=row.pk).values().get()
    assert client.get(f"{list_of(model)}add/").status_code == 403
    assert client.post(page_of(row), {field.name: "1" for field in model._meta.fields}).status_code == 403
    assert client.post(page_of(row).replace("/change/", "/delete/"), {"post": "yes"}).status_code == 403
    delete = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
    client.post(list_of(model), delete)
    assert model._default_manager.filter(pk=row.pk).values().get() == before
    assert 'name="_save"' not in client.get(page_of(row)).content.decode()


@every_model
def test_a_list_counts_no_further_than_its_bound(
    rows: dict[str, models.Run], model: type[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_ROWS", 1)
    client, table = sign_in("admin"), model._meta.db_table
    with CaptureQueriesContext(connection) as asked:
        html = client.get(list_of(model)).content.decode()
    counts = [query["sql"] for query in asked if "COUNT(" in query["sql"] and f'"{table}"' in query["sql"]]
    assert counts and all("LIMIT 1" in sql for sql in counts), counts
    assert f"1+ {model._meta.verbose_name_plural}" in html


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_large_list_stays_in_its_order_whatever_is_clicked(rows: dict[str, models.Run], name: str) -> None:
    model = next(model for model in OURS if model.__name__ == name)
    client = sign_in("admin")
    orders = set()
    for address in (list_of(model), f"{list_of(model)}?o=2", f"{list_of(model)}?o=-3.1"):
        with CaptureQueriesContext(connection) as asked:
            html = client.get(address).content.decode()
        orders |= {
            sql.split(" ORDER BY ")[1].split(" LIMIT")[0]
            for sql in (query["sql"] for query in asked)
            if f'FROM "{model._meta.db_table}"' in sql and " ORDER BY " in sql
        }
        assert 'class="sortoptions"' not in html
    assert len(orders) == 1, orders


def test_the_dashboard_leads_to_the_record_for_staff_alone(rows: dict[str, models.Run]) -> None:
    operation = models.BulkOperation.objects.get()
    samples = {"run_id": rows["failed"].pk, "name": "video-upload", "operation_id": operation.pk}
    client = sign_in("viewer")
    led = 0
    for address in addresses(samples):
        if address.part != "dashboard":
            continue
        answer = client.get(address.path)
        html = answer.content.decode() if answer.status_code == 200 and not answer.streaming else ""
        if "The record in the admin" in html:
            link = html.split('">The record in the admin')[0].rsplit('href="', 1)[1]
            assert client.get(link.replace("&amp;", "&")).status_code == 200, link
            led += 1
    assert led >= 15
    User.objects.filter(username="user-viewer").update(is_staff=False)
    assert "The record in the admin" not in client.get("/runs/").content.decode()


def test_a_pause_can_be_ended_from_the_list(rows: dict[str, models.Run]) -> None:
    pause = models.Pause.objects.create(
        kind="queue", name="media-light", reason="x", actor="mara", until=timezone.now() + timedelta(hours=1)
    )
    chosen = {"action": "resume", "_selected_action": [str(pause.pk)], "confirmed": "yes", "reason": "cards are back"}
    sign_in("viewer").post(list_of(models.Pause), chosen)
    assert models.Pause.objects.filter(pk=pause.pk).exists()
    sign_in("operator").post(list_of(models.Pause), chosen)
    assert not models.Pause.objects.filter(pk=pause.pk, until__gt=timezone.now()).exists()
    record = models.AuditRecord.objects.get(action="resume")
    assert (record.actor, record.reason) == ("user-operator", "cards are back")
