"""Schedules: kept by publishing, fired once, missed and skipped ticks, and what people do with them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.utils import timezone

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound
from orchestrator.definitions.publish import publish
from orchestrator.engine.db import connect
from orchestrator.engine.operate import pause_schedule, resume_schedule, run_schedule_now
from orchestrator.engine.schedules import fire_due
from orchestrator.engine.submit import submit
from orchestrator.models import AuditRecord, Pause, Run, Schedule

ADMIN = Actor("ada", "admin")
DAILY = {"cron": "0 3 * * *", "timezone": "Europe/Paris", "subject": "nightly-{date}", "overlap": "skip"}


@pytest.fixture
def schedule(kit):
    """The kit's schedule, daily, with a tick that has just come; ``schedule(...)`` changes it and answers the row."""

    def change(**values):
        Schedule.objects.filter(workflow="kit-nightly").update(**{**DAILY, "next_at": timezone.now(), **values})
        return Schedule.objects.get(workflow="kit-nightly")

    change()
    yield change
    kit.worker.work()


def fire(kit):
    return fire_due(kit.worker.conn)


def row():
    return Schedule.objects.get(workflow="kit-nightly")


def notes():
    return list(AuditRecord.objects.filter(subject="schedule kit-nightly").order_by("id"))


def runs():
    return list(Run.objects.filter(workflow="kit-nightly").order_by("id"))


def test_a_tick_starts_a_run_and_moves_on(kit, schedule):
    tick = datetime(2024, 7, 1, 22, 30, tzinfo=UTC)
    schedule(next_at=tick, cron="30 0 2 7 *")
    last = timezone.now().replace(month=7, day=1, hour=22, minute=30, second=0, microsecond=0)
    last = last if last <= timezone.now() else last.replace(year=last.year - 1)
    assert fire(kit) == 1
    (run,) = runs()
    assert run.subject_id == f"nightly-{last.year}-07-02"
    assert run.idempotency_key == f"schedule:kit-nightly:{last.isoformat()}"
    assert (run.submitted_by, run.labels) == ("schedule", {"schedule": "kit-nightly"})
    assert (row().last_at, row().last_run_id) == (last, run.pk)
    assert row().next_at == last.replace(year=last.year + 1)
    assert fire(kit) == 0
    kit.worker.work()
    assert kit.run(run.pk).state == "done"


def test_missed_ticks_fire_once_as_the_latest(kit, schedule):
    first = timezone.now().replace(microsecond=0) - timedelta(days=3)
    schedule(cron="0 * * * *", next_at=first.replace(minute=0, second=0))
    fire(kit)
    (run,) = runs()
    assert timezone.now() - row().last_at < timedelta(hours=1)
    assert row().missed in (72, 73) and row().missed_at is not None
    (note,) = notes()
    assert note.actor == "engine"
    assert note.after == {"tick": row().last_at.isoformat(), "run": str(run.pk), "missed": row().missed}


def test_overlap_skip_looks_at_this_schedules_runs_alone(kit, schedule):
    kit.submit("nightly", labels={"schedule": "kit-nightly"})  # of somebody else
    fire(kit)
    (_, first) = runs()
    schedule(next_at=timezone.now())
    assert fire(kit) == 1
    assert len(runs()) == 2
    assert (row().skipped, row().last_run_id) == (1, first.pk)
    assert notes()[-1].after["run"] == str(first.pk)
    assert "live still" in notes()[-1].after["skipped"]
    kit.worker.work()
    schedule(next_at=timezone.now() - timedelta(days=1))
    fire(kit)
    assert len(runs()) == 3


def test_overlap_allow_does_not(kit, schedule):
    schedule(overlap="allow", cron="* * * * * *")
    fire(kit)
    schedule(overlap="allow", cron="* * * * * *", next_at=timezone.now() - timedelta(seconds=2))
    fire(kit)
    schedule(overlap="allow", cron="* * * * * *", next_at=timezone.now() + timedelta(hours=1))
    assert fire(kit) == 0
    assert len(runs()) == 2
    assert row().skipped == 0


def test_what_cannot_be_submitted_is_told_and_passed_over(kit, schedule):
    schedule(subject="x" * 501)
    submit("kit-solo", "another", idempotency_key="other")
    assert fire(kit) == 1
    assert runs() == []
    assert row().next_at > timezone.now()
    assert "501 characters" in notes()[-1].after["skipped"]


def test_many_dispatchers_one_tick(kit, schedule):
    schedule(cron="* * * * * *", overlap="allow")
    counts = []

    def fire_now():
        conn = connect("another dispatcher")
        start.wait()
        counts.append(fire_due(conn))
        conn.close()
        connections.close_all()

    for _ in range(5):
        Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=1))
        before = len(runs())
        start = threading.Barrier(6)
        threads = [threading.Thread(target=fire_now) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(runs()) <= before + 1
    assert sum(counts) == 5


def test_a_paused_workflow_fires_nothing_until_resumed(kit, schedule):
    pause = Pause.objects.create(
        kind="workflow", name="kit-nightly", actor="a", until=timezone.now() + timedelta(hours=1)
    )
    assert fire(kit) == 0
    pause.delete()
    assert fire(kit) == 1


def test_publishing_keeps_the_row(kit):
    made = row()
    assert (made.cron, made.timezone, made.subject, made.overlap) == (
        "0 3 1 1 *",
        "Europe/Paris",
        "nightly-{date}",
        "skip",
    )
    assert made.next_at > timezone.now()
    assert (made.next_at.astimezone(UTC).hour, made.next_at.minute) == (2, 0)
    moment = made.next_at - timedelta(days=400)
    Schedule.objects.update(next_at=moment, paused=True)
    publish(["tests.workflows.kit"])
    assert (row().next_at, row().paused) == (moment, True)
    Schedule.objects.update(cron="0 4 * * *")
    publish(["tests.workflows.kit"])
    assert row().next_at == made.next_at
    Schedule.objects.all().delete()
    Schedule.objects.create(workflow="kit-solo", cron="0 4 * * *", subject="x")
    publish(["tests.workflows.kit"])
    assert list(Schedule.objects.values_list("workflow", flat=True)) == ["kit-nightly"]


def test_pause_and_resume(kit, schedule):
    pause_schedule("kit-nightly", ADMIN, "new disks")
    assert (row().paused_by, row().paused_reason) == ("ada", "new disks")
    assert fire(kit) == 0
    with pytest.raises(Conflict, match="paused already"):
        pause_schedule("kit-nightly", ADMIN, "again")
    Schedule.objects.update(next_at=timezone.now() - timedelta(days=9))
    resume_schedule("kit-nightly", ADMIN, "done")
    assert row().next_at > timezone.now()
    assert (row().paused, row().paused_by) == (False, "")
    assert fire(kit) == 0
    with pytest.raises(Conflict, match="not paused"):
        resume_schedule("kit-nightly", ADMIN, "again")
    assert [(n.action, n.actor, n.role, n.reason) for n in notes()] == [
        ("pause", "ada", "admin", "new disks"),
        ("resume", "ada", "admin", "done"),
    ]


def test_run_now(kit, schedule):
    fire(kit)
    run_id = run_schedule_now("kit-nightly", ADMIN, "a look")
    assert runs()[-1].pk == run_id
    assert runs()[-1].submitted_by == "ada"
    assert (row().last_run_id, row().last_at) == (run_id, row().last_at)
    assert notes()[-1].after == {"run": str(run_id)}
    Schedule.objects.update(next_at=timezone.now())
    fire(kit)
    assert row().skipped == 1, "its runs by hand are its runs"


@pytest.mark.parametrize("act", [pause_schedule, resume_schedule, run_schedule_now])
def test_who_may(kit, act):
    with pytest.raises(NotAllowed):
        act("kit-nightly", Actor("olga", "operator"), "x")
    with pytest.raises(Invalid):
        act("kit-nightly", ADMIN, " ")
    with pytest.raises(NotFound, match="kit-solo"):
        act("kit-solo", ADMIN, "x")
