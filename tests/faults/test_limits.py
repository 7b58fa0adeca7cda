"""Topics and locks on real workers: never more at once than allowed, nothing leaked, nobody forgotten."""

from __future__ import annotations

import itertools
import time

import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.states import Cause, RunState, StepState
from orchestrator.engine.limits import set_topic_limit
from orchestrator.models import DeadLetter, Run, Step

OPERATOR = Actor("tester", "operator")


def most_at_once(entries):
    """The largest number of handlers between their start and their end at the same time."""
    now, most = 0, 0
    for entry in entries:
        now += 1 if entry.event == "start" else -1
        most = max(most, now)
    return most


def parked(world, run_id, what, count=1):
    world.until(lambda: Step.objects.filter(run=run_id, state="waiting", waiting_for=what).count() == count)


def on_gpu(world, items, do=None, **more):
    return world.submit("topic", {"list": {"emit": items}, **(do or {})}, **more)


@pytest.mark.parametrize("processes", [1, 4])
def test_a_topic_of_one_is_never_two(world, processes):
    world.start(processes)
    run_id = on_gpu(world, list(range(60)), {"a": "sleep:0.01"})
    (run,) = world.finish(run_id, timeout=60)
    entries = world.ledger.of("a", ("start", "end"), run_id)
    assert run.state == RunState.DONE and most_at_once(entries) == 1
    assert world.ledger.effects("a", run_id) == 60 and world.ledger.calls("end", run_id) == 1
    starts = [e.at for e in entries if e.event == "start"]
    assert max(b - a for a, b in itertools.pairwise(starts)) < 1.5
    world.until(lambda: not world.live.redis.keys("rq:job:*"))  # a ticket that was used leaves nothing behind


@pytest.mark.long
@pytest.mark.timeout(300)
def test_five_hundred_short_steps_take_turns_on_one_slot(world):
    """C56: from eight processes; never two, no pause while others wait, and no run is left behind."""
    world.ready(8)
    runs = [on_gpu(world, list(range(50)), {"a": "sleep:0.02"}, subject=f"s{i}") for i in range(10)]
    ended = world.finish(*runs, timeout=240)
    assert {run.state for run in ended} == {"done"}
    entries = [e for e in world.ledger.of("a", ("start", "end")) if e.shard]
    assert most_at_once(entries) == 1 and len(entries) == 2 * 500
    gaps = [b.at - a.at for a, b in itertools.pairwise(entries) if (a.event, b.event) == ("end", "start")]
    waits = [
        (started - created).total_seconds()
        for started, created in Step.objects.filter(topic="gpu").values_list("started_at", "created_at")
    ]
    mean = sum(waits) / len(waits)
    took = entries[-1].at - entries[0].at
    print(f"\n500 steps of 20 ms on one slot, 8 processes: {took:.1f} s, longest pause {max(gaps) * 1000:.0f} ms,")
    print(f"waited {mean:.2f} s in the mean, {max(waits):.2f} s at most")
    assert max(gaps) < 1.0 and max(waits) < 10 * mean


def test_a_killed_holder_frees_its_slot(world):
    """C54."""
    world.start(2)
    first = on_gpu(world, [1], {"a": "hold1:go"})
    world.called("a", run=first)
    second = on_gpu(world, [1])
    parked(world, second, "topic")
    world.handler_process("a", first).kill()
    runs = world.finish(first, second)
    assert [run.state for run in runs] == ["done", "done"]
    assert world.row(first, "a", "1").attempt == 2


@pytest.mark.slow
def test_limit_zero_pauses_and_a_higher_one_wakes_at_once(world):
    set_topic_limit("gpu", 0, OPERATOR)
    world.start(2)
    run_id = on_gpu(world, [1, 2, 3])
    parked(world, run_id, "topic", 3)
    assert world.ledger.calls("a", run_id) == 0
    set_topic_limit("gpu", 3, OPERATOR)
    assert world.finish(run_id)[0].state == RunState.DONE


def test_a_retry_holds_no_lock_meanwhile(world):
    """C58."""
    world.start(2)
    slow = world.submit("lock", {"a": "fail:1"})
    world.until(lambda: Step.objects.filter(run=slow, waiting_for="retry").exists())
    quick = world.submit("lock")
    assert world.finish(quick)[0].state == RunState.DONE
    assert Run.objects.get(pk=slow).state == RunState.RUNNING
    assert world.finish(slow)[0].state == RunState.DONE


def test_a_lock_lets_one_at_a_time_and_forgets_nobody(world):
    world.start(4)
    runs = [world.submit("lock", {"a": "sleep:0.02"}) for _ in range(20)]
    assert {run.state for run in world.finish(*runs, timeout=40)} == {"done"}
    assert most_at_once([e for e in world.ledger.entries() if e.event in ("start", "end")]) == 1
    assert {world.row(run, "a").attempt for run in runs} == {1}


def test_different_names_do_not_exclude_one_another(world):
    world.start(2)
    runs = [world.submit("lock", {"a": "hold:go"}, subject=f"s{i}") for i in range(2)]
    world.until(lambda: all(world.ledger.calls("a", run) for run in runs), timeout=2 + 20)
    world.ledger.open("go")
    world.finish(*runs)


@pytest.mark.parametrize(("workflow", "letters"), [("lock-reject", 0), ("lock-dead-letter", 1)])
def test_a_refused_lock_is_recorded(world, workflow, letters):
    world.start(2)
    holder = world.submit(workflow, {"a": "hold:go"})
    world.called("a", run=holder)
    (run,) = world.finish(world.submit(workflow))
    assert (run.state, run.cause) == (RunState.FAILED, Cause.LOCK)
    row = world.row(run.pk, "a")
    assert (row.state, row.cause, row.attempt) == (StepState.REJECTED, Cause.LOCK, 0)
    assert world.row(run.pk, "b").state == StepState.SKIPPED
    assert DeadLetter.objects.filter(run=run).count() == letters
    world.ledger.open("go")
    assert world.finish(holder)[0].state == RunState.DONE


def test_a_lock_named_at_submission_and_its_policy(world):
    world.start(2)
    holder = world.submit("solo", {"a": "hold:go"}, lock="mine")
    world.called("a", run=holder)
    waiter = world.submit("solo", lock="mine")
    loser = world.submit("solo", lock="mine", on_lock_conflict="reject")
    assert world.finish(loser)[0].cause == Cause.LOCK
    parked(world, waiter, "lock")
    world.ledger.open("go")
    assert world.finish(waiter)[0].state == RunState.DONE


@pytest.mark.parametrize("ending", ["fatal", "skip", "always_fail", "hold:x", "kill"])
def test_every_ending_frees_the_lock(world, ending):
    """C62: failed, skipped, tried again, timed out or killed."""
    world.start(2)
    first = world.submit("lock", {"a": f"sleep:0.2; {ending}"})
    world.called("a", run=first)
    second = world.submit("lock")
    assert world.finish(second)[0].state == RunState.DONE
    world.ledger.open("x")
    world.finish(first)


def test_what_waits_for_a_lock_is_cancelled_at_once(world):
    world.start(1)
    holder = world.submit("lock", {"a": "sleep:1"})
    world.called("a", run=holder)
    waiter = world.submit("lock")
    began = time.monotonic()
    world.cancel(waiter)
    assert Run.objects.get(pk=waiter).state == RunState.CANCELLED and time.monotonic() - began < 1
    world.finish(holder)
