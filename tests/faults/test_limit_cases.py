"""Limits and locks when something goes wrong: who is killed, paused, cancelled or refused holds nothing afterwards."""

from __future__ import annotations

import pytest
from django.db import connection

from orchestrator.core.actor import Actor
from orchestrator.core.states import RunState, StepState
from orchestrator.engine.limits import set_topic_limit
from orchestrator.models import Run, Step
from tests.faults.conftest import DETECT
from tests.faults.test_limits import most_at_once, parked
from tests.faults.test_more_cases import cut

OPERATOR = Actor("tester", "operator")


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", ["nothing", "redis is emptied", "connections are cut"])
def test_a_killed_holder_frees_its_slot_for_all_who_wait(world, meanwhile):
    """C54: whatever else is lost with it, one after the other runs and never two."""
    world.ready(3)
    first = world.submit("narrow", {"a": "hold1:x"}, deadline="5m")
    world.called("a", run=first)
    others = [world.submit("narrow", subject=f"s{i}") for i in range(3)]
    world.until(lambda: Step.objects.filter(run__in=others, waiting_for="topic").count() == 3)
    world.handler_process("a", first).kill()
    if meanwhile == "redis is emptied":
        world.live.redis.flushdb()
    elif meanwhile == "connections are cut":
        cut()
    assert {run.state for run in world.finish(*others, timeout=DETECT + 20)} == {"done"}
    assert world.finish(first)[0].state == "done"
    killed = world.ledger.of("a", ["start"], first)[0]
    rest = [e for e in world.ledger.entries() if e.event in ("start", "end") and e != killed and e.step == "a"]
    assert most_at_once([e for e in rest if e.run in {str(first), *map(str, others)}]) == 1


def test_a_retry_holds_no_slot_meanwhile(world):
    """C58, for a topic."""
    world.start(2)
    slow = world.submit("narrow", {"a": "fail:1"})
    world.until(lambda: Step.objects.filter(run=slow, waiting_for="retry").exists())
    assert world.finish(world.submit("narrow"))[0].state == RunState.DONE
    assert Run.objects.get(pk=slow).state == RunState.RUNNING
    assert world.finish(slow)[0].state == RunState.DONE


@pytest.mark.slow
def test_a_lock_is_not_given_back_by_one_who_has_lost_it(world):
    """C60: the holder is paused past its lease, others take the lock in turn, and then the holder comes back."""
    first = world.start()
    old = world.submit("serial", {"a": "hold1:x"})
    world.called("a")
    late = world.ledger.of("a", ["start"])[0]
    first.pause()
    world.worker(2)
    second = world.submit("serial", {"a": "hold:y"})
    # The old run's next attempt and the second run take turns; the second holds the lock when the first comes back.
    world.called("a", run=second, timeout=DETECT + 20)
    world.ledger.open("x")
    first.resume()
    third = world.submit("serial")
    parked(world, third, "lock")
    world.ledger.open("y")
    assert {run.state for run in world.finish(old, second, third)} == {"done"}
    told = [e for e in world.ledger.entries() if e.event in ("start", "end")]
    assert most_at_once([e for e in told if (e.run, e.attempt) != (late.run, late.attempt)]) == 1


def test_every_ending_frees_the_slot(world):
    """C62: done, failed, skipped, timed out, killed, cancelled; the second one always waits for the first."""
    world.ready(2)
    ways = {"cancel": "coop_hold:x", "force": "hold:x"}
    for ending in ["ok", "fatal", "skip", "hold:x", "kill:1", "cancel", "force"]:
        first = world.submit("narrow", {"a": ways.get(ending, f"sleep:0.3; {ending}")}, subject=ending)
        world.called("a", run=first)
        second = world.submit("narrow", subject="other")
        if ending in ways:
            parked(world, second, "topic")
            world.cancel(first, force=ending == "force")
        assert world.finish(second)[0].state == RunState.DONE, ending


def test_what_was_refused_or_cancelled_while_it_waited_fills_no_topic(world):
    """C62: rejected by a lock, and cancelled in the line."""
    world.start(2)
    holder = world.submit("narrow-lock", {"a": "hold:go"})
    world.called("a", run=holder)
    (refused,) = world.finish(world.submit("narrow-lock"))
    assert world.row(refused.pk, "a").state == StepState.REJECTED
    waiter = world.submit("narrow")
    parked(world, waiter, "topic")
    world.cancel(waiter)
    last = world.submit("narrow", subject="other")
    parked(world, last, "topic")
    world.ledger.open("go")
    assert [run.state for run in world.finish(holder, waiter, last)] == ["done", "cancelled", "done"]
    set_topic_limit("narrow", 0, OPERATOR)
    paused = world.submit("narrow")
    parked(world, paused, "topic")
    world.cancel(paused)
    set_topic_limit("narrow", 1, OPERATOR)
    assert world.finish(world.submit("narrow", subject="third"))[0].state == RunState.DONE
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM workflow_steps WHERE state IN ('running', 'waiting', 'queued')")
        assert cursor.fetchone() == (0,)
