"""Topics and locks on real workers: never more at once than allowed, nothing leaked, nobody forgotten."""

from __future__ import annotations

import time

import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.states import Cause, RunState, StepState
from orchestrator.engine.limits import set_topic_limit
from orchestrator.engine.operate import cancel_run
from orchestrator.engine.submit import submit
from orchestrator.models import DeadLetter, Run, Step
from tests.harness.invariants import check_invariants
from tests.harness.wait import wait_until

pytestmark = pytest.mark.servers
OPERATOR = Actor("tester", "operator")


def most_at_once(entries):
    """The largest number of handlers between their start and their end at the same time."""
    now, most = 0, 0
    for entry in entries:
        now += 1 if entry.event == "start" else -1
        most = max(most, now)
    return most


def row(run_id, step="a", shard=""):
    return Step.objects.get(run=run_id, step=step, shard=shard)


def waits_for(run_id, what):
    wait_until(lambda: Step.objects.filter(run=run_id, state="waiting", waiting_for=what).exists(), 15)


@pytest.mark.parametrize("processes", [1, 4])
def test_a_topic_of_one_is_never_two(kit, processes):
    kit.start(processes=processes)
    run = submit("topic", "s", {"items": list(range(60)), "do": {"a": "sleep:0.01"}})
    kit.live.finish(run, 60)
    entries = [e for e in kit.ledger.entries(run) if e.step == "a"]
    assert most_at_once(entries) == 1
    assert kit.ledger.effects("a", run) == 60 and kit.ledger.calls("end", run) == 1
    starts = [e.at for e in entries if e.event == "start"]
    assert max(b - a for a, b in zip(starts, starts[1:], strict=False)) < 1.5
    check_invariants()


def test_a_killed_holder_frees_its_slot(kit):
    kit.start(processes=2)
    first = submit("topic", "s", {"items": [1], "do": {"a": "wait:go"}})
    kit.wait_for_start("a", first)
    second = submit("topic", "t", {"items": [1]})
    waits_for(second, "topic")
    kit.kill_handler("a", first)
    kit.open("go")
    assert kit.live.finish(second).state == RunState.DONE
    assert kit.live.finish(first).state == RunState.DONE
    assert row(first, shard="1").attempt == 2
    check_invariants()


def test_limit_zero_pauses_and_a_higher_one_wakes_at_once(kit):
    set_topic_limit("gpu", 0, OPERATOR)
    kit.start(processes=2)
    run = submit("topic", "s", {"items": [1, 2, 3]})
    wait_until(lambda: Step.objects.filter(run=run, waiting_for="topic").count() == 3, 15)
    assert kit.ledger.calls("a", run) == 0
    set_topic_limit("gpu", 3, OPERATOR)
    assert kit.live.finish(run).state == RunState.DONE
    check_invariants()


def test_a_retry_holds_no_slot_meanwhile(kit):
    kit.start(processes=2)
    slow = submit("lock", "same", {"do": {"a": "fail:1"}})
    wait_until(lambda: Step.objects.filter(run=slow, waiting_for="retry").exists(), 15)
    begun = time.monotonic()
    quick = submit("lock", "same")
    assert kit.live.finish(quick).state == RunState.DONE
    assert time.monotonic() - begun < 2.5
    assert kit.live.finish(slow).state == RunState.DONE
    check_invariants()


def test_a_lock_lets_one_at_a_time_and_forgets_nobody(kit):
    kit.start(processes=4)
    runs = [submit("lock", "same", {"do": {"a": "sleep:0.02"}}) for _ in range(20)]
    for run in runs:
        assert kit.live.finish(run, 40).state == RunState.DONE
    assert most_at_once(kit.ledger.entries()) == 1
    assert {row(run).attempt for run in runs} == {1}
    check_invariants()


def test_different_names_do_not_exclude_one_another(kit):
    kit.start(processes=2)
    runs = [submit("lock", f"s{i}", {"do": {"a": "wait:go"}}) for i in range(2)]
    wait_until(lambda: all(kit.ledger.calls("a", run) for run in runs), 15)
    kit.open("go")
    for run in runs:
        assert kit.live.finish(run).state == RunState.DONE


@pytest.mark.parametrize(("workflow", "letters"), [("lock-reject", 0), ("lock-dead-letter", 1)])
def test_a_refused_lock_is_recorded(kit, workflow, letters):
    kit.start(processes=2)
    holder = submit(workflow, "same", {"do": {"a": "wait:go"}})
    kit.wait_for_start("a", holder)
    loser = submit(workflow, "same")
    run = kit.live.finish(loser)
    assert (run.state, run.cause) == (RunState.FAILED, Cause.LOCK)
    assert (row(loser).state, row(loser).cause, row(loser).attempt) == (StepState.REJECTED, Cause.LOCK, 0)
    assert row(loser, "b").state == StepState.SKIPPED
    assert DeadLetter.objects.filter(run=loser).count() == letters
    kit.open("go")
    assert kit.live.finish(holder).state == RunState.DONE
    check_invariants()


def test_a_lock_named_at_submission_and_its_policy(kit):
    kit.start(processes=2)
    holder = submit("solo", "x", {"do": {"a": "wait:go"}}, lock="mine")
    kit.wait_for_start("a", holder)
    waiter = submit("solo", "y", lock="mine")
    loser = submit("solo", "z", lock="mine", on_lock_conflict="reject")
    assert kit.live.finish(loser).cause == Cause.LOCK
    waits_for(waiter, "lock")
    kit.open("go")
    assert kit.live.finish(waiter).state == RunState.DONE
    check_invariants()


@pytest.mark.parametrize("ending", ["fatal", "skip", "always_fail", "cancel", "timeout"])
def test_every_ending_frees_the_lock(kit, ending):
    kit.start(processes=2)
    first = submit("lock", "same", {"do": {"a": "wait:go" if ending == "cancel" else f"sleep:0.2; {ending}"}}, lock="L")
    kit.wait_for_start("a", first)
    second = submit("lock", "same")
    if ending == "cancel":
        cancel_run(first, OPERATOR, "test", force=True)
    assert kit.live.finish(second, 30).state == RunState.DONE
    kit.open("go")
    kit.live.finish(first, 30)
    check_invariants()


def test_what_waits_for_a_lock_is_cancelled_at_once(kit):
    kit.start(processes=1)
    holder = submit("lock", "same", {"do": {"a": "wait:go"}})
    kit.wait_for_start("a", holder)
    waiter = submit("lock", "same")
    time.sleep(0)
    cancel_run(waiter, OPERATOR, "no longer wanted")
    assert Run.objects.get(pk=waiter).state == RunState.CANCELLED
    kit.open("go")
    kit.live.finish(holder)
    check_invariants()
