"""Cancelling at every boundary: what is queued, what runs and looks, what runs and does not, what is lost."""

from __future__ import annotations

import time

import pytest

from orchestrator.models import DeadLetter
from tests.faults.conftest import DETECT


def test_a_handler_that_looks_stops_at_once_and_undo_is_not_hindered(world):
    """C41, C48: nothing starts after it; the undo asks check_cancelled and goes on."""
    world.start()
    do = {"c": "coop_hold:x", "undo:a": "check", "undo:b": "coop:0.2", "undo:c": "check"}
    run_id = world.submit("saga", do)
    world.called("c")
    began = time.monotonic()
    world.cancel(run_id)
    (run,) = world.finish(run_id)
    assert time.monotonic() - began < 5
    assert (run.state, run.cause, run.compensation, run.node_states) == ("cancelled", "cancelled", "done", "ddcb")
    order = world.ledger.order(run_id)
    assert order == ["a", "b", "c", "undo:c", "undo:b", "undo:a", "undo:on_failure", "undo:on_failure:2"]
    assert world.ledger.of("undo:c", ["undo"])[0].note == [False, "cancelled"]
    assert DeadLetter.objects.count() == 0


def test_a_handler_that_does_not_look_is_killed_after_the_grace(world):
    """C43 iii."""
    world.start()
    run_id = world.submit("saga", {"b": "hold:x"})
    world.called("b")
    world.cancel(run_id)
    (run,) = world.finish(run_id, timeout=1 + DETECT)
    assert (run.state, world.row(run_id, "b").state, world.row(run_id, "b").cause) == (
        "cancelled",
        "cancelled",
        "cancelled",
    )
    assert world.ledger.effects("b") == 0
    assert world.ledger.order(run_id, "undo")[:2] == ["undo:b", "undo:a"]
    assert world.finish(world.submit("solo"))[0].state == "done"


def test_force_kills_at_once(world):
    world.live.configure(ORCHESTRATOR_CANCEL_GRACE_SECONDS="600")
    world.start()
    run_id = world.submit("saga", {"b": "hold:x"})
    world.called("b")
    world.cancel(run_id)
    world.cancel(run_id, force=True)
    (run,) = world.finish(run_id, timeout=DETECT)
    assert (run.state, run.compensation) == ("cancelled", "done")


def test_force_while_undoing_ends_the_undo_that_runs(world):
    world.live.configure(ORCHESTRATOR_CANCEL_GRACE_SECONDS="600")
    world.start()
    run_id = world.submit("saga", {"d": "fatal", "undo:b": "hold:x"})
    world.called("undo:b")
    world.cancel(run_id, force=True)
    (run,) = world.finish(run_id, timeout=DETECT + 5)
    assert (run.state, run.cause, run.compensation) == ("failed", "error", "partial")
    row = world.row(run_id, "undo:b")
    assert (row.state, row.cause) == ("failed", "cancelled")
    assert world.ledger.calls("undo:b") == 1
    assert world.ledger.calls("undo:a") == 1, "the others run"
    assert set(DeadLetter.objects.values_list("step", flat=True)) == {"d", "undo:b"}


def test_cancel_finds_only_its_own_run_in_a_worker(world):
    """The process is killed for one run; the next one in its batch loses nothing."""
    world.start(1)
    cancelled = world.submit("solo", {"a": "hold:x"})
    world.called("a", run=cancelled)
    others = [world.submit("solo", subject=f"s{i}") for i in range(10)]
    world.cancel(cancelled)
    assert {run.state for run in world.finish(*others)} == {"done"}
    assert world.finish(cancelled)[0].state == "cancelled"
    assert all(world.row(other, "a").attempt == 1 for other in others)


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_cancel_with_the_worker_gone(world, how):
    """C43 i, ii: bounded by the lease; other runs go on."""
    first = world.start()
    run_id = world.submit("saga", {"b": "hold:x"})
    world.called("b")
    if how == "killed":
        first.kill_all()
    else:
        first.pause()
    world.cancel(run_id)
    world.worker()
    (run,) = world.finish(run_id, timeout=DETECT + 10)
    assert (run.state, run.cause, world.row(run_id, "b").state) == ("cancelled", "cancelled", "cancelled")
    assert world.ledger.order(run_id, "undo")[:2] == ["undo:b", "undo:a"]


def test_cancel_of_a_wide_fan_out_at_random_moments(world):
    """C47: while it expands, while it runs, near its end."""
    world.start(2)
    runs = []
    for i in range(6):
        run_id = world.submit("dynamic", {"l": "numbers", "f": "sleep:0.05"}, subject=f"s{i}", input={"n": 300})
        runs.append(run_id)
        if i % 2:
            world.called("f", 5 * i, run=run_id)
        world.cancel(run_id)
    for run in world.finish(*runs):
        assert run.state == "cancelled"
        assert world.ledger.calls("j", run.pk) == 0
        starts = [e.at for e in world.ledger.of("f", ["start"], run.pk)]
        assert all(at < run.finished_at.timestamp() + 0.5 for at in starts)
