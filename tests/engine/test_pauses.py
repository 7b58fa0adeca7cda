"""Pauses: what does not start meanwhile, what does, and who may pause what."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound
from orchestrator.engine import explain, pauses
from orchestrator.engine.operate import pause, resume
from orchestrator.models import Attempt, AuditRecord, Outbox, Pause, Step
from orchestrator.transport.tickets import TicketRef
from tests.engine.conftest import OPERATOR


@pytest.fixture
def now_known(kit, monkeypatch):
    """Workers look at the pauses every time."""
    monkeypatch.setattr(pauses, "FRESH", 0.0)


def tickets_again(kit):
    """What the dispatcher issues when a pause has ended."""
    for row in Step.objects.filter(state="queued").select_related("run"):
        kit.worker.drainer.drain([TicketRef(row.run_id, row.run.definition_id, row.step, row.queue)])
    kit.worker.work()


@pytest.mark.usefixtures("now_known")
def test_a_paused_queue_starts_nothing_and_spends_nothing(kit):
    pause("queue", "right", 60, OPERATOR, "new disks")
    run = kit.go("queues")
    assert kit.states(run) == {"a": "done", "b": "queued"}
    assert kit.row(run, "b").attempt == 0
    assert not Outbox.objects.exists()
    said = explain.where(kit.run(run.pk)).sentence
    assert "the queue right is paused by olga until" in said
    assert "(new disks)" in said
    resume("queue", "right", OPERATOR)
    tickets_again(kit)
    assert kit.run(run.pk).state == "done"
    assert kit.row(run, "b").attempt == 1
    assert not Attempt.objects.exists()


@pytest.mark.usefixtures("now_known")
def test_a_paused_workflow_starts_no_step_but_undoes(kit):
    run_id = kit.submit("saga")
    while kit.states(run_id).get("a") != "done":
        kit.worker.drainer.drain(kit.worker.tickets()[:1])
    pause("workflow", "kit-saga", 60, OPERATOR, "a bad release")
    kit.worker.work()
    other = kit.go("solo")
    assert other.state == "done"
    tickets_again(kit)
    assert list(kit.states(run_id).values())[-1] == "queued"
    kit.cancel(run_id)
    kit.worker.work()
    run = kit.run(run_id)
    assert (run.state, run.compensation) == ("cancelled", "done")
    assert [row.state for row in run.steps.filter(kind="compensation")].count("done") >= 2


@pytest.mark.usefixtures("now_known")
def test_a_pause_amid_a_slice_stops_what_would_follow(kit, monkeypatch):
    """What runs may finish; what it makes ready is queued and not taken on."""
    from orchestrator.transport import execute

    run_id = kit.submit("chain")

    class Pausing:
        def call(self, handler, ctx, work):
            if ctx.step == "b":
                pause("workflow", "kit-chain", 60, OPERATOR, "now")
            return handler(ctx)

        def ended(self, work, closure, connect):
            pass

    monkeypatch.setattr(execute, "around", Pausing())
    kit.worker.work()
    assert kit.states(run_id) == {"a": "done", "b": "done", "c": "queued"}
    resume("workflow", "kit-chain", OPERATOR)
    monkeypatch.setattr(execute, "around", None)
    tickets_again(kit)
    assert kit.run(run_id).state == "done"


@pytest.mark.usefixtures("now_known")
def test_locks_and_topics_are_not_held_by_what_is_paused(kit):
    pause("workflow", "kit-lock", 60, OPERATOR, "x")
    run = kit.go("lock")
    assert kit.states(run) == {"a": "queued"}
    kit.worker.drainer.drain([TicketRef(run.pk, run.definition_id, "a", "default", 1000)])
    assert kit.row(run, "a").attempt == 0
    resume("workflow", "kit-lock", OPERATOR)
    kit.worker.drainer.drain([TicketRef(run.pk, run.definition_id, "a", "default", 1000)])
    kit.worker.work()
    assert kit.run(run.pk).state == "done"


def test_pauses_end_by_themselves(kit):
    made = pause("queue", "left", None, OPERATOR, "x")
    assert timedelta(minutes=59) < made.until - timezone.now() <= timedelta(hours=1)
    assert pauses.live() == [made]
    Pause.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert pauses.live() == []
    with pytest.raises(Conflict, match="is not paused"):
        resume("queue", "left", OPERATOR)
    assert kit.go("queues").state == "done"


def test_a_look_at_the_pauses_knows_when_they_end(kit, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(pauses.time, "monotonic", lambda: clock[0])
    pause("queue", "left", 30, OPERATOR, "x")
    pause("workflow", "kit-solo", 60, OPERATOR, "x")
    watch = pauses.Watch()
    watch.refresh(kit.worker.conn)
    assert watch.holds("w", "left") and watch.holds("w", "left", undo=True)
    assert watch.holds("kit-solo", "q") and not watch.holds("kit-solo", "q", undo=True)
    assert not watch.holds("w", "right")
    clock[0] += 31
    assert not watch.holds("w", "left") and watch.holds("kit-solo", "q")
    clock[0] += 30
    assert not watch.holds("kit-solo", "q")


def test_a_look_is_good_for_a_second(kit, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(pauses.time, "monotonic", lambda: clock[0])
    watch = pauses.Watch()
    watch.refresh(kit.worker.conn)
    pause("queue", "left", 30, OPERATOR, "x")
    clock[0] += 0.9
    watch.refresh(kit.worker.conn)
    assert not watch.holds("w", "left")
    clock[0] += 0.2
    watch.refresh(kit.worker.conn)
    assert watch.holds("w", "left")


def test_a_pause_again_replaces_the_first_and_all_is_kept(kit):
    first = pause("workflow", "kit-solo", 60, OPERATOR, "first")
    second = pause("workflow", "kit-solo", 7200, Actor("mara", "operator"), "longer")
    assert [(p.reason, p.actor) for p in pauses.live()] == [("longer", "mara")]
    resume("workflow", "kit-solo", OPERATOR, "mended")
    kept = list(AuditRecord.objects.filter(subject="workflow kit-solo").order_by("id"))
    assert [(r.action, r.actor, r.reason) for r in kept] == [
        ("pause", "olga", "first"),
        ("pause", "mara", "longer"),
        ("resume", "olga", "mended"),
    ]
    assert kept[1].before == {"paused": True, "until": first.until.isoformat(), "by": "olga"}
    assert kept[1].after == {"paused": True, "until": second.until.isoformat()}
    assert kept[2].after == {"paused": False}


@pytest.mark.parametrize(
    ("kind", "name", "seconds", "reason", "problem"),
    [
        ("workflow", "kit-nope", 60, "x", NotFound),
        ("queue", "nope", 60, "x", NotFound),
        ("topic", "gpu", 60, "x", Invalid),
        ("queue", "two words", 60, "x", Invalid),
        ("queue", "a\x00b", 60, "x", Invalid),
        ("queue", "left", 0.5, "x", Invalid),
        ("queue", "left", 400 * 86400, "x", Invalid),
        ("queue", "left", float("nan"), "x", Invalid),
        ("queue", "left", 60, " ", Invalid),
    ],
)
def test_what_cannot_be_paused(kit, kind, name, seconds, reason, problem):
    with pytest.raises(problem):
        pause(kind, name, seconds, OPERATOR, reason)
    assert not Pause.objects.exists()


def test_who_may(kit):
    pause("queue", "left", 60, OPERATOR, "x")
    for act in (lambda who: pause("queue", "right", 60, who, "x"), lambda who: resume("queue", "left", who)):
        with pytest.raises(NotAllowed):
            act(Actor("sam", "support"))


def test_a_pause_that_is_rolled_back_never_was(kit):
    with pytest.raises(RuntimeError), transaction.atomic():
        pause("queue", "left", 60, OPERATOR, "x")
        raise RuntimeError
    assert pauses.live() == []
