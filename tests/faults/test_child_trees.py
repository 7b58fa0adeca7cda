"""Trees of child runs: from threads of a handler, to any depth, attached by hand, cut off while they grow."""

from __future__ import annotations

import json

import pytest

from orchestrator.core.errors import Invalid
from orchestrator.engine.describe import run_json
from orchestrator.engine.submit import submit
from orchestrator.models import Run, Step
from tests.faults.test_children import children


@pytest.mark.slow
def test_threads_submit_children_where_the_handler_passes_its_context_on(world):
    """And a retried handler finds the same children again, whichever thread is first."""
    world.start(2)
    run_id = world.submit("grow", {"s": "fail:2"})
    (run,) = world.finish(run_id)
    found = children(run_id)
    assert run.state == "done" and world.ledger.calls("s", run_id) == 3
    assert sorted(child.subject_id for child in found) == ["sx", "sy", "sz"]
    assert {child.parent_step_id for child in found} == {world.row(run_id, "s").pk}
    alone = Run.objects.get(subject_id="alone")
    assert alone.parent_run is None
    listed = next(step["children"] for step in run_json(run_id)["steps"] if step["step"] == "s")
    assert sorted(listed) == sorted(str(child.pk) for child in found)
    world.finish(alone.pk)


def test_a_tree_is_joined_from_its_leaves_up(world):
    world.start(2)
    root = world.submit("grow", input={"depth": 3, "width": 2})
    (run,) = world.finish(root, timeout=60)
    level = [run]
    for width in (2, 4, 8):
        below = [child for parent in level for child in children(parent.pk)]
        assert len(below) == width and {child.state for child in below} == {"done"}
        assert all(child.finished_at <= Run.objects.get(pk=child.parent_run_id).finished_at for child in below)
        level = below
    assert run_json(level[0].pk)["parent"] == {"run_id": str(level[0].parent_run_id), "step": "s"}


def test_a_cancel_reaches_the_whole_tree(world):
    world.start(2)
    root = world.submit("grow", {}, input={"depth": 2, "width": 2, "child": {"a": "coop_hold:x"}})
    world.until(lambda: Step.objects.filter(step="a", state="running").count() == 2)
    world.cancel(root)
    world.finish(root)
    world.all_end()
    states = dict(Run.objects.exclude(subject_id="alone").values_list("subject_id", "state"))
    assert set(states.values()) == {"cancelled"} and len(states) > 3


def test_a_failure_at_a_leaf_comes_up(world):
    world.start(2)
    root = world.submit("grow", {}, input={"depth": 2, "width": 1, "child": {"a": "always_fail"}})
    (run,) = world.finish(root)
    assert (run.state, run.cause) == ("failed", "child_failed")
    assert "kit-grow sx failed (child_failed)" in run.error["message"]


def test_no_child_is_made_after_a_cancel_wherever_it_falls(world):
    """C47: a fan-out of many child runs, cancelled at several moments of its expansion."""
    world.start(2)
    runs = []
    for seen in (0, 1, 20, 60):
        run_id = world.submit("brood", {"list": {"emit": list(range(500))}}, subject=f"s{seen}",
                              input={"child": {"a": "coop:0.2"}})  # fmt: skip
        world.until(lambda n=seen, r=run_id: Run.objects.filter(parent_run=r).count() >= n)
        world.cancel(run_id)
        runs.append(run_id)
    for run in world.finish(*runs, timeout=60):
        made = Run.objects.filter(parent_run=run)
        assert run.state == "cancelled" and made.count() < 500
        assert all(child.submitted_at <= run.cancel_requested_at for child in made)
        assert not made.exclude(state__in=["cancelled", "done"]).exists()
        assert world.ledger.calls("b", run.pk) == 0


def test_a_run_is_attached_to_another_by_hand(world):
    """It is a part of it on pages and in the API; the other neither waits for it nor stops it."""
    world.start(2)
    head = world.submit("solo")
    world.finish(head)
    part = submit("kit-solo", "part", {"do": {}}, parent=head)
    assert [child.pk for child in children(head)] == [part]
    assert run_json(part)["parent"] == {"run_id": str(head), "step": None}
    by_command = world.live.answer(
        "submit", "kit-solo", "--subject", "cli", "--parent", str(head), "--after", str(part)
    )
    assert by_command["parent"]["run_id"] == str(head)
    world.finish(part, by_command["id"])
    for bad in ("nope", "01900000-0000-7000-8000-000000000000"):
        with pytest.raises(Invalid, match="parent") as refused:
            submit("kit-solo", "part", {}, parent=bad)
        assert refused.value.field == "parent"
    assert json.loads(json.dumps(run_json(head)))["state"] == "done"
