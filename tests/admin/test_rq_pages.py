"""django-rq's pages inside the admin: for admins, and harmless."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.models import AuditRecord
from tests.admin.test_admin import sign_in

BASE = "/admin/rq"
PAGES = ["/", "/stats.json", "/metrics", "/queues/0/", *(f"/queues/0/{name}/" for name in (
    "details", "finished", "failed", "scheduled", "started", "deferred", "empty", "requeue-all", "failed/clear",
)), "/workers/0/"]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("path", PAGES)
def test_pages_open_for_admins_alone(path: str) -> None:
    assert sign_in("admin").get(BASE + path).status_code == 200
    assert sign_in("operator").get(BASE + path).status_code == 403
    assert Client().get(BASE + path).status_code == 302


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/queues/99/", "/queues/0/nope/", "/queues/0/nope/delete/", "/workers/0/nope/", "/schedulers/0/"]
)
def test_what_is_not_there_is_404(path: str) -> None:
    assert sign_in("admin").get(BASE + path).status_code == 404


@pytest.mark.django_db
def test_its_own_registration_is_off() -> None:
    assert sign_in("admin").get("/admin/django_rq/dashboard/").status_code == 404


@pytest.mark.django_db
def test_stop_is_refused_and_the_rest_is_audited() -> None:
    client = sign_in("admin")
    for path, body in (("/queues/0/some-job/stop/", {}), ("/queues/0/some-job/../actions/0/", {"action": "stop"})):
        client.post(BASE + path, body)
    client.post(f"{BASE}/queues/actions/0/", {"action": "stop", "job_ids": ["x"]})
    assert not AuditRecord.objects.exists()
    assert client.post(f"{BASE}/queues/0/requeue-all/").status_code == 302
    assert AuditRecord.objects.get().after == {"action": "requeue_all"}
    assert sign_in("operator").post(f"{BASE}/queues/0/requeue-all/").status_code == 403


@pytest.mark.django_db
def test_redis_down_is_said(settings: Any) -> None:
    settings.RQ_QUEUES = {name: {**queue, "URL": "redis://127.0.0.1:1/0"} for name, queue in settings.RQ_QUEUES.items()}
    page = sign_in("admin").get(f"{BASE}/queues/0/")
    assert page.status_code == 503
    assert b"record is not affected" in page.content
