"""A new version lands while runs are under way: each keeps to the definition that it was started with."""

from __future__ import annotations

import pytest

from orchestrator.core.actor import Actor
from orchestrator.engine import operate
from orchestrator.engine.describe import run_json
from orchestrator.engine.submit import submit
from orchestrator.models import Step

EDITOR = Actor("eda", "operator", frozenset({"editors"}))
OLD, NEW = "tests.workflows.ages", "tests.workflows.ages_later"


def at_the_approval(world, run_id):
    world.until(lambda: Step.objects.filter(run=run_id, waiting_for="approval").exists())
    return Step.objects.get(run=run_id, waiting_for="approval").pk


def start(world, *packages):
    world.live.publish(*packages)
    world.live.start_dispatcher()
    return world.live.start_worker("default", processes=2)


def stop_all(world):
    for process in world.live.processes:
        if process.is_running():
            process.stop()


@pytest.mark.slow
def test_runs_keep_their_version_through_restart_retry_and_undo(world):
    """C76."""
    start(world, OLD)
    old = submit("ages", "s", {"do": {"c": "fail_until:mended"}})
    row = at_the_approval(world, old)
    stop_all(world)

    start(world, OLD, NEW)
    operate.approve_step(row, EDITOR, "fine")
    (run,) = world.finish(old)
    assert (run.state, run.version, run.compensation) == ("failed", 1, "done")
    assert world.ledger.order(old) == ["a", "b", "c", "undo:b", "undo:a"] or world.ledger.order(old)[:3] == list("abc")
    new = submit("ages", "s", {"do": {}})
    (run,) = world.finish(new)
    assert (run.state, run.version, world.ledger.order(new)) == ("done", 2, ["a", "x", "c"])

    world.ledger.open("mended")
    world.retry(old)
    (run,) = world.finish(old)
    assert (run.state, run.version, world.ledger.order(old)[-3:]) == ("done", 1, ["a", "b", "c"])
    assert [step["step"] for step in run_json(old)["steps"]] == ["a", "ok", "b", "c"]
    assert [step["step"] for step in run_json(new)["steps"]] == ["a", "x", "c"]


@pytest.mark.slow
def test_a_worker_without_the_handler_leaves_the_step_queued_and_says_so(world):
    start(world, OLD)
    run_id = submit("ages", "s", {"do": {}})
    row = at_the_approval(world, run_id)
    stop_all(world)

    worker = start(world, NEW)
    operate.approve_step(row, EDITOR, "fine")
    worker.wait_for_line("no handler here for b of ages v1", 30)
    world.until(lambda: "middle" in run_json(run_id)["where"])
    step = world.row(run_id, "b")
    assert (step.state, step.attempt) == ("queued", 0)
    assert "has no handler middle for it" in run_json(run_id)["where"], run_json(run_id)["where"]

    world.live.start_worker("default", ORCHESTRATOR_WORKFLOWS=f"{OLD}:{NEW}")
    (run,) = world.finish(run_id)
    assert (run.state, world.row(run_id, "b").attempt, world.row(run_id, "b").note) == ("done", 1, None)
