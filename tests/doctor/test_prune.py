"""What retention deletes and what it leaves alone."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from orchestrator.core.actor import Actor
from orchestrator.engine import retention, rollup
from orchestrator.engine.artifacts import artifact_store
from orchestrator.engine.db import caller_connection
from orchestrator.models import (
    Attempt,
    AuditRecord,
    Beat,
    DeadLetter,
    FanOut,
    Lease,
    Outbox,
    RollupDelta,
    Run,
    Schedule,
    Step,
)
from tests.harness.factory import lease, make

DAY = 86_400
PAULA = Actor("paula", "admin")


@pytest.fixture(autouse=True)
def _artifacts(settings: Any, tmp_path: Any) -> None:
    from dataclasses import replace

    settings.ORCHESTRATOR = replace(settings.ORCHESTRATOR, artifacts_url=str(tmp_path / "artifacts"))


def aged(stage: str, days: float, **run: Any) -> Run:
    made = make(stage, **run)
    Run.objects.filter(pk=made.pk).update(finished_at=timezone.now() - timedelta(days=days))
    artifact_store().bind(made.pk, "probe").put("a.txt", "x")
    made.refresh_from_db()
    return made


def prune(days: float = 30, **more: Any) -> retention.Pruned:
    return retention.prune(caller_connection(), days * DAY, PAULA, **more)


def kept_file(run: Run) -> bool:
    return artifact_store().bind(run.pk, "probe").exists("a.txt")


@pytest.mark.django_db
def test_old_runs_go_with_all_their_rows():
    old = [aged(stage, 31) for stage in ("done", "failed", "partial", "cancelled")]
    young = [aged(stage, 2) for stage in ("done", "failed")]
    live = make("compensating")
    Outbox.objects.create(run_id=old[0].pk, definition_id=1, step="x", queue="q")
    rollup.add("workflow_runs_failed_total", {"workflow": "video-upload", "cause": "error"})
    counters = RollupDelta.objects.count()

    pruned = prune()
    assert pruned.runs == 4
    assert pruned.steps > 20
    assert pruned.attempts == 8
    assert pruned.dead_letters == 3
    assert pruned.artifacts == 4
    assert set(Run.objects.values_list("pk", flat=True)) == {*(r.pk for r in young), live.pk}
    for model in (Step, Attempt, DeadLetter, FanOut):
        assert not model.objects.filter(run__in=[r.pk for r in old]).exists()
    assert not AuditRecord.objects.filter(run__in=[r.pk for r in old]).exists()
    assert not Outbox.objects.exists()
    assert [kept_file(r) for r in (*old, *young)] == [False] * 4 + [True] * 2
    assert RollupDelta.objects.count() == counters, "what was counted stays counted"
    record = AuditRecord.objects.get(action="prune")
    assert (record.actor, record.subject, record.after["runs"]) == ("paula", "runs", 4)


@pytest.mark.django_db
def test_dry_run_counts_and_deletes_nothing():
    run = aged("failed", 31)
    pruned = prune(dry_run=True)
    assert (pruned.runs, pruned.dead_letters) == (1, 1)
    assert pruned.steps == Step.objects.filter(run=run).count()
    assert Run.objects.filter(pk=run.pk).exists()
    assert kept_file(run)
    assert not AuditRecord.objects.filter(action="prune").exists()


@pytest.mark.django_db
def test_in_batches():
    for _ in range(5):
        aged("done", 40)
    assert prune(batch=2).runs == 5
    assert not Run.objects.exists()
    assert prune().runs == 0


@pytest.mark.django_db
def test_a_live_run_is_never_pruned_however_old():
    run = make("retrying", ago=100 * DAY)
    assert prune().runs == 0
    assert Run.objects.filter(pk=run.pk).exists()


@pytest.mark.django_db
def test_families_go_as_a_whole():
    parent, child, grandchild = (aged("done", days) for days in (31, 32, 33))
    Run.objects.filter(pk=child.pk).update(parent_run=parent)
    Run.objects.filter(pk=grandchild.pk).update(parent_run=child)
    Run.objects.filter(pk=parent.pk).update(finished_at=timezone.now() - timedelta(days=29))
    assert prune().runs == 1, "the grandchild's parent is old enough, the child's is not"
    Run.objects.filter(pk=parent.pk).update(finished_at=timezone.now() - timedelta(days=31))
    assert prune(batch=1).runs == 2
    assert not Run.objects.exists()


@pytest.mark.django_db
def test_a_parent_waits_for_a_young_child():
    parent, child = aged("done", 31), aged("done", 5)
    Run.objects.filter(pk=child.pk).update(parent_run=parent)
    assert prune().runs == 0


@pytest.mark.django_db
def test_a_schedule_outlives_its_last_run():
    run = aged("done", 31)
    Schedule.objects.create(workflow="video-upload", cron="0 3 * * *", subject="x", last_run=run)
    assert prune().runs == 1
    assert Schedule.objects.get().last_run is None


@pytest.mark.django_db
def test_artifacts_of_runs_that_failed_go_after_a_week():
    runs = {name: aged(*name) for name in (("failed", 8), ("cancelled", 8), ("done", 8), ("failed", 6), ("partial", 9))}
    assert retention.expire_artifacts(caller_connection()) == 3
    assert {name: kept_file(run) for name, run in runs.items()} == {
        ("failed", 8): False, ("cancelled", 8): False, ("done", 8): True, ("failed", 6): True, ("partial", 9): False,
    }  # fmt: skip
    assert Run.objects.count() == 5, "the runs stay"


@pytest.mark.django_db
def test_artifacts_are_looked_at_once():
    first = aged("failed", 10)
    conn = caller_connection()
    assert retention.expire_artifacts(conn) == 1
    artifact_store().bind(first.pk, "probe").put("a.txt", "x")
    assert retention.expire_artifacts(conn) == 0
    aged("failed", 9)
    assert retention.expire_artifacts(conn) == 1
    assert Beat.objects.get(name="retention").detail["last"]


@pytest.mark.django_db
def test_many_failed_runs_over_several_pages(monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    for _ in range(5):
        aged("failed", 8)
    assert retention.expire_artifacts(caller_connection()) == 5


@pytest.mark.django_db
def test_a_run_that_was_retried_keeps_its_artifacts():
    run = aged("failed", 8)
    Run.objects.filter(pk=run.pk).update(state="running", finished_at=None)
    assert retention.expire_artifacts(caller_connection()) == 0
    assert kept_file(run)


@pytest.mark.django_db
def test_ended_leases_go_after_a_day():
    now = timezone.now()
    old, young, alive, held = lease("old"), lease("young"), lease("alive"), lease("held")
    Lease.objects.filter(pk__in=[old.pk, held.pk]).update(ended_at=now - timedelta(days=2))
    Lease.objects.filter(pk=young.pk).update(ended_at=now - timedelta(hours=2))
    run = make("mid_fan_out")
    Step.objects.filter(run=run, state="running").update(lease_id=held.pk)
    assert retention.forget_leases(caller_connection()) == 1
    assert set(Lease.objects.values_list("name", flat=True)) >= {"young", "alive", "held"}
    assert not Lease.objects.filter(pk=old.pk).exists()
    assert alive.ended_at is None


def command(*words: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("prune", *words, stdout=out, stderr=err)
    except CommandError as refused:
        code = refused.returncode if type(refused) is not CommandError else 2
        return code, out.getvalue(), str(refused)
    return 0, out.getvalue(), err.getvalue()


def test_command(live):
    aged("failed", 31)
    code, out, _ = command("--older-than", "30d", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["runs"] == 1
    assert json.loads(out)["dry_run"] is True
    code, out, _ = command("--older-than", "30d", "--json")
    answer = json.loads(out)
    assert (code, answer["runs"], answer["older_than"], answer["dead_letters"]) == (0, 1, 30 * DAY, 1)
    assert command("--older-than", "30d")[1].startswith("nothing deleted")
    assert AuditRecord.objects.filter(action="prune").count() == 1


@pytest.mark.parametrize("words", [(), ("--older-than", "soon"), ("--older-than", "-3d"), ("--older-than", "30")])
def test_bad_usage(words):
    assert command(*words)[0] == 2


def test_locked_runs_stay_for_the_next_time(live):
    """Somebody is retrying it at this moment."""
    run = aged("failed", 31)
    with live.database.connect() as other:
        other.autocommit = False
        other.execute("SELECT 1 FROM workflow_runs WHERE id = %s FOR NO KEY UPDATE", [run.pk])
        assert command("--older-than", "30d", "--json")[0] == 0
        assert Run.objects.filter(pk=run.pk).exists()
        other.rollback()
    assert json.loads(command("--older-than", "30d", "--json")[1])["runs"] == 1
