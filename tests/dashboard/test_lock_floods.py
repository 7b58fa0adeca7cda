"""The page of dead letters warns where a lock's policy fills it with what is routine."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator.engine.contention import ROUTINE, floods
from orchestrator.models import DeadLetter
from tests.harness.factory import Build, step_spec, workflow_spec

pytestmark = pytest.mark.django_db
SPEC = workflow_spec("desk", 1, [step_spec("charge", [], lock="desk", on_lock_conflict="dead_letter")])


def park(rows, cause="lock", **more):
    for i in range(rows):
        build = Build(SPEC, subject=f"s{cause}{i}"[:20])
        build.row("charge", "queued")
        run = build.save()
        row = run.steps.get()
        DeadLetter.objects.create(
            run=run, step_row=row, workflow="desk", version=1, step="charge", cause=cause, fingerprint=cause,
            error={"type": "LockHeld", "message": "held"}, attempts=0, **more,
        )  # fmt: skip


def test_routine_contention_is_told_and_what_to_do(viewer):
    park(ROUTINE)
    html = viewer.get("/dead-letters/").content.decode()
    assert "A lock floods the dead letters." in html and "on_lock_conflict: requeue" in html
    assert f"charge of desk has parked {ROUTINE} steps within the hour" in html
    assert "workflow=desk&amp;step=charge&amp;cause=lock" in html


def test_rare_contention_old_or_closed_ones_and_other_failures_are_not(viewer):
    park(ROUTINE - 1)
    park(ROUTINE, cause="error")
    park(ROUTINE, last_at=timezone.now() - timedelta(hours=2))
    park(ROUTINE, state="discarded", closed_at=timezone.now())
    assert floods() == []
    assert "floods the dead letters" not in viewer.get("/dead-letters/").content.decode()


def test_the_same_row_again_and_again_counts_each_time():
    park(1, count=ROUTINE)
    assert [(f.step, f.count) for f in floods()] == [("charge", ROUTINE)]
