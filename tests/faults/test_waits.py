"""Approvals, runs that wait for others, joins that wait long enough: no worker is held, nothing is forgotten."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, NotAllowed
from orchestrator.core.states import Cause, RunState, StepState
from orchestrator.engine import operate
from orchestrator.models import AuditRecord, DeadLetter, Run, Step

OPERATOR = Actor("tester", "operator")
EDITOR = Actor("eda", "operator", frozenset({"editors"}))
ADMIN = Actor("root", "admin")


def waiting(world, run_id):
    world.until(lambda: Step.objects.filter(run=run_id, waiting_for="approval").exists())
    return Step.objects.get(run=run_id, waiting_for="approval")


@pytest.mark.parametrize("by", [EDITOR, ADMIN])
def test_an_approval_lets_the_run_go_on(world, by):
    world.start()
    run_id = world.submit("approval")
    row = waiting(world, run_id)
    with pytest.raises(NotAllowed):
        operate.approve_step(row.pk, OPERATOR, "not mine to give")
    with pytest.raises(NotAllowed):
        operate.approve_step(row.pk, Actor("sue", "support", frozenset({"editors"})), "nor hers")
    operate.approve_step(row.pk, by, "looks right")
    assert world.finish(run_id)[0].state == RunState.DONE
    assert world.row(run_id, "ok").output == {"approved_by": by.name, "reason": "looks right"}
    assert AuditRecord.objects.get(run=run_id, action="approve").actor == by.name
    with pytest.raises(Conflict):
        operate.approve_step(row.pk, by, "again")


def test_a_rejected_approval_fails_the_run_and_undoes(world):
    world.start()
    run_id = world.submit("approval")
    operate.reject_step(waiting(world, run_id).pk, EDITOR, "blurred")
    (run,) = world.finish(run_id)
    assert (run.state, run.cause) == (RunState.FAILED, Cause.ERROR)
    assert "blurred" in world.row(run_id, "ok").error["message"]
    assert world.ledger.order(run_id) == ["a", "undo"] and DeadLetter.objects.filter(run=run_id).count() == 1


def test_a_retry_asks_for_approval_again(world):
    world.start()
    run_id = world.submit("approval")
    operate.reject_step(waiting(world, run_id).pk, EDITOR, "blurred")
    world.finish(run_id)
    world.retry(run_id)
    operate.approve_step(waiting(world, run_id).pk, EDITOR, "sharp now")
    assert world.finish(run_id)[0].state == RunState.DONE
    assert world.ledger.calls("a", run_id) == 2 and world.ledger.calls("b", run_id) == 1


@pytest.mark.parametrize(
    ("then", "state", "step"), [("fail", "failed", "failed"), ("approve", "done", "done"), ("skip", "done", "skipped")]
)
def test_an_approval_that_nobody_gives(world, then, state, step):
    world.start()
    run_id = world.submit(f"approval-{then}")
    (run,) = world.finish(run_id)
    assert (run.state, world.row(run_id, "ok").state) == (state, step)
    assert run.cause == (Cause.TIMEOUT if then == "fail" else None)


def test_cancelling_while_an_approval_is_awaited(world):
    world.start()
    run_id = world.submit("approval")
    row = waiting(world, run_id)
    world.cancel(run_id)
    assert world.finish(run_id)[0].state == RunState.CANCELLED
    with pytest.raises(Conflict):
        operate.approve_step(row.pk, ADMIN, "too late")


def test_skipping_what_waits(world):
    world.start()
    run_id = world.submit("approval")
    operate.skip_step(waiting(world, run_id).pk, OPERATOR, "not needed for this one")
    assert world.finish(run_id)[0].state == RunState.DONE
    assert world.row(run_id, "ok").state == StepState.SKIPPED
    with pytest.raises(Conflict):
        operate.skip_step(world.row(run_id, "b").pk, OPERATOR, "done already")


@pytest.mark.parametrize("workflow", ["exclusive", "exclusive-all"])
def test_a_second_run_is_refused_and_named(world, workflow):
    world.start(2)
    first = world.submit(workflow, {"a": "hold:go"}, idempotency_key="k")
    with pytest.raises(Conflict, match=str(first)):
        world.submit(workflow)
    assert world.submit(workflow, {"a": "hold:go"}, idempotency_key="k") == first
    assert Run.objects.count() == 1
    record = AuditRecord.objects.get(action="rejected")
    assert record.before == {"holder": str(first)}
    if workflow == "exclusive":
        world.finish(world.submit(workflow, subject="another"))
    world.ledger.open("go")
    world.finish(first)
    assert world.finish(world.submit(workflow))[0].state == RunState.DONE


def test_waiting_runs_take_turns_in_order(world):
    world.start(2)
    runs = [world.submit("turns", {"a": "sleep:0.05"}) for _ in range(5)]
    other = world.submit("turns", subject="other")
    assert world.finish(other)[0].state == RunState.DONE
    ended = world.finish(*runs)
    times = [(run.started_at, run.finished_at) for run in ended]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))
    assert all((run.deadline_at - run.started_at).total_seconds() == run.deadline_seconds for run in ended)


def test_one_that_waits_its_turn_can_be_cancelled(world):
    world.start()
    runs = [world.submit("turns", {"a": "hold:go"}) for _ in range(3)]
    world.cancel(runs[1])
    assert world.finish(runs[1])[0].state == RunState.CANCELLED
    world.ledger.open("go")
    assert [run.state for run in world.finish(runs[0], runs[2])] == ["done", "done"]


def test_a_run_comes_after_others_whatever_their_end(world):
    world.start(2)
    good, bad = world.submit("solo", {"a": "hold:go"}), world.submit("solo", {"a": "fatal"})
    last = world.submit("solo", after=[good, bad])
    world.finish(bad)
    assert Run.objects.get(pk=last).started_at is None
    world.ledger.open("go")
    (run,) = world.finish(last)
    assert run.state == RunState.DONE and run.started_at >= Run.objects.get(pk=good).finished_at


def test_a_join_goes_on_with_what_has_completed(world):
    world.start(3)
    world.finish(*[world.submit("solo") for _ in range(6)])
    run_id = world.submit("join-timeout", {"f/1": "ok", "f/2": "hold:x", "f/3": "hold:x", "f/4": "ok"})
    (run,) = world.finish(run_id)
    rows = {row.shard: (row.state, row.cause) for row in Step.objects.filter(run=run_id, step="f")}
    assert run.state == RunState.DONE and world.ledger.calls("j", run_id) == 1
    assert rows["1"] == rows["4"] == ("done", None) and rows["2"] == rows["3"] == ("cancelled", "timeout")
    world.ledger.open("x")
    world.until(lambda: world.ledger.effects("f/2", run_id) == 1)
    assert world.row(run_id, "f", "2").state == "cancelled"
