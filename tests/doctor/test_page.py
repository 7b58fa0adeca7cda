"""The health page shows what the doctor last found."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from dashboard.queries import health
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor.keep import keep


@pytest.fixture
def viewer(db: None) -> Client:
    user = User.objects.create(username="v")
    user.groups.set(Group.objects.filter(name="viewer"))
    client = Client()
    client.force_login(user)
    return client


def page(client: Client) -> str:
    return client.get("/health/").content.decode()


def test_health_page(ward, viewer):
    assert "Not yet" in page(viewer)
    run = ward.admit("retrying")
    keep(caller_connection(), ward.examine(), "dora")
    assert "invariants held" in page(viewer)
    ward.sql("UPDATE workflow_runs SET pending = 9")
    keep(caller_connection(), ward.examine(), "dora")
    html = page(viewer)
    assert "1 thing is broken" in html
    assert str(run.pk) in html
    assert "Pending is 9" in html


def test_health_page_warns_of_a_redis_that_may_evict(ward, viewer, monkeypatch):
    monkeypatch.setattr(health, "eviction_warning", lambda timeout: "Redis may evict tickets")
    assert "May evict" in page(viewer)
