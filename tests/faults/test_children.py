"""Child runs: joined without a worker, stopped with their parent, never made twice."""

from __future__ import annotations

import pytest

from orchestrator.core.states import Cause, RunState
from orchestrator.models import Attempt, Run, Step


def submit(world, workflow, child=None, do=None, **more):
    return world.submit(workflow, do, input={"child": child or {}}, **more)


def children(run_id):
    return list(Run.objects.filter(parent_run=run_id).order_by("id"))


def test_a_child_step_brings_its_output_up_and_the_parent_waits(world):
    world.start()
    run_id = submit(world, "child", {"a": {"emit": {"n": 7}}})
    (run,) = world.finish(run_id)
    (child,) = children(run_id)
    assert (run.state, child.state, child.subject_id) == ("done", "done", "s")
    assert world.row(run_id, "c").output == {"n": 7} == child.output
    assert world.row(run_id, "b").started_at >= child.finished_at
    assert child.deadline_at <= run.deadline_at and child.parent_step_id == world.row(run_id, "c").pk


def test_children_of_a_fan_out_keep_to_the_window(world):
    world.start()
    run_id = submit(world, "children", {"a": "hold:go"})
    world.until(lambda: len(children(run_id)) == 2)
    assert Step.objects.get(run=run_id, step="c", shard="z").state == "pending"
    world.ledger.open("go")
    (run,) = world.finish(run_id)
    assert run.state == RunState.DONE
    assert [child.subject_id for child in children(run_id)] == ["s/x", "s/y", "s/z"]
    assert world.ledger.calls("b", run_id) == 1


def test_a_failed_child_fails_its_step_and_a_retry_retries_the_same_child(world):
    world.start()
    run_id = submit(world, "child", {"a": "fail_until:mended"})
    (run,) = world.finish(run_id)
    (child,) = children(run_id)
    assert (run.state, run.cause, child.state) == (RunState.FAILED, Cause.CHILD_FAILED, RunState.FAILED)
    # Its own `retries` are not spent on what a child came to.
    assert len(children(run_id)) == 1 and world.ledger.calls("a", child.pk) == 1
    world.ledger.open("mended")
    world.retry(run_id)
    (run,) = world.finish(run_id)
    assert run.state == RunState.DONE and [c.pk for c in children(run_id)] == [child.pk]
    assert world.ledger.calls("a", run_id) == 1


def test_cancelling_the_parent_cancels_what_it_started(world):
    world.start()
    run_id = submit(world, "children", {"a": "coop_hold:x"})
    world.until(lambda: len(children(run_id)) == 2)
    world.cancel(run_id)
    (run,) = world.finish(run_id)
    assert run.state == RunState.CANCELLED
    assert {child.state for child in children(run_id)} == {"cancelled"} and len(children(run_id)) == 2
    assert all(child.finished_at <= run.finished_at for child in children(run_id))


def test_what_a_handler_submits_is_its_child(world):
    world.start()
    run_id = submit(world, "spawns", {"a": "hold:go"}, {"s": "submit:3"})
    world.until(lambda: Step.objects.filter(run=run_id, step="s", waiting_for="children").exists())
    assert world.ledger.calls("b", run_id) == 0
    world.ledger.open("go")
    (run,) = world.finish(run_id)
    assert run.state == RunState.DONE and len(children(run_id)) == 3
    assert all(child.parent_step_id == world.row(run_id, "s").pk for child in children(run_id))


@pytest.mark.parametrize("ending", ["cancelled", "child_failed"])
def test_an_attempt_that_waited_for_its_children_in_vain_is_in_the_history(world, ending):
    world.start()
    child = "coop_hold:x" if ending == "cancelled" else "fatal"
    run_id = submit(world, "spawns", {"a": child}, {"s": "submit:1"})
    if ending == "cancelled":
        world.until(lambda: Step.objects.filter(run=run_id, step="s", waiting_for="children").exists())
        world.cancel(run_id)
    world.finish(run_id)
    row = world.row(run_id, "s")
    attempt = Attempt.objects.get(step_row=row)
    assert (row.cause, row.attempt, attempt.attempt, attempt.cause) == (ending, 1, 1, ending)
    assert attempt.worker and attempt.started_at < attempt.finished_at


def test_a_retried_handler_does_not_submit_twice(world):
    world.start()
    run_id = submit(world, "spawns", {}, {"s": "submit:2; fail:1"})
    (run,) = world.finish(run_id)
    assert run.state == RunState.DONE and len(children(run_id)) == 2 and world.ledger.calls("s", run_id) == 2


def test_detached_runs_are_nobodys_children(world):
    world.start(2)
    run_id = submit(world, "spawns", {"a": "hold:go"}, {"s": "detach"})
    (run,) = world.finish(run_id)
    free = Run.objects.get(subject_id="free")
    assert run.state == RunState.DONE and free.state == RunState.RUNNING and free.parent_run is None
    world.ledger.open("go")
    world.finish(free.pk)


@pytest.mark.parametrize("when", [0, 1, 3])
def test_no_child_is_made_after_a_cancel(world, when):
    """C47."""
    world.start()
    run_id = submit(world, "children", {"a": "sleep:0.3"})
    world.until(lambda: len(children(run_id)) >= when)
    world.cancel(run_id)
    acknowledged = Run.objects.get(pk=run_id).cancel_requested_at
    world.finish(run_id)
    assert all(child.submitted_at <= acknowledged for child in children(run_id))
    assert not Run.objects.filter(parent_run=run_id, state="running").exists()


def test_children_are_undone_and_a_retry_makes_new_ones(world):
    """By the undo of their step, the latest first, and by on_failure, which undoes all steps: the timer waits again."""
    world.start()
    run_id = submit(world, "child-saga", {"a": "key"}, {"b": "fail_until:mended"})
    (run,) = world.finish(run_id)
    assert (run.state, run.compensation) == (RunState.FAILED, "done")
    undone = world.ledger.order(run_id, "undo")
    assert undone[0] == "undo:b" and undone[3:] == ["undo:c", "undo:on_failure"]
    assert sorted(undone[1:3]) == ["undo:f/x", "undo:f/y"]
    before, timer = {child.pk: child.output for child in children(run_id)}, world.row(run_id, "w").pk
    world.ledger.open("mended")
    world.retry(run_id)
    (run,) = world.finish(run_id)
    after = {child.pk: child.output for child in children(run_id) if child.pk not in before}
    assert run.state == RunState.DONE and len(before) == len(after) == 3
    assert not {*before.values()} & {*after.values()} and world.row(run_id, "c").output in after.values()
    assert world.row(run_id, "w").pk != timer, "a timer is made anew"


def test_a_retry_from_a_step_makes_its_done_children_anew(world):
    world.start()
    run_id = submit(world, "children", do={"b": "fail_until:mended"})
    world.finish(run_id)
    before = {child.pk for child in children(run_id)}
    world.ledger.open("mended")
    world.retry(run_id, from_step="c")
    (run,) = world.finish(run_id)
    after = {child.pk for child in children(run_id)}
    assert run.state == RunState.DONE and len(before) == 3 and before < after and len(after) == 6
