"""What a request reads once, what is kept for a few seconds, and what never is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dashboard import keeping, nav
from orchestrator.models import AuditRecord, Pause, Run
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


def overdue(count: int) -> None:
    for _ in range(count):
        run = make("retrying")
        Run.objects.filter(pk=run.pk).update(deadline_at=timezone.now() - timedelta(minutes=5))


def test_outside_of_a_request_everything_is_read_again() -> None:
    assert nav.frame().counts["overdue"] == 0
    overdue(1)
    assert nav.frame().counts["overdue"] == 1


def test_many_are_kept_but_a_pause_and_an_act_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nav, "MANY", 1)
    overdue(1)
    before = nav.frame()
    overdue(1)
    until = timezone.now() + timedelta(hours=1)
    Pause.objects.create(kind="queue", name="default", reason="token=abcdef123456", actor="mara", until=until)
    acted = AuditRecord.objects.create(subject="queue default", action="pause", actor="mara", role="operator")
    after = nav.frame()
    assert (before.counts["overdue"], after.counts["overdue"]) == (1, 1), "kept"
    assert [(p.kind, p.name, p.actor, p.until) for p in after.pauses] == [("queue", "default", "mara", until)]
    assert "abcdef123456" not in after.pauses[0].reason
    assert after.last_act == acted.pk


def test_few_are_not_kept() -> None:
    answers = iter([3, 4])
    read: Any = lambda: next(answers)  # noqa: E731
    assert [keeping.kept_if_many("few", read, int) for _ in range(2)] == [3, 4]
    answers = iter([keeping.MANY, 5])
    assert [keeping.kept_if_many("many", read, int) for _ in range(2)] == [keeping.MANY, keeping.MANY]


def test_a_long_list_of_late_runs_goes_on(viewer: Client) -> None:
    overdue(21)
    short, long = (viewer.get(path).content.decode() for path in ("/overdue/", "/overdue/?more=1"))
    assert "21 runs are past the deadline" in short
    assert (short.count("data-row"), long.count("data-row")) == (12, 21)
    assert 'href="?more=1"' in short
    assert 'href="?more=1"' not in long
