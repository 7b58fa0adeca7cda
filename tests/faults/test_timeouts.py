"""Attempts that do not end by themselves, and runs that are past their deadline."""

from __future__ import annotations

import time

import pytest

from orchestrator.models import Attempt, AuditRecord, Run
from tests.faults.conftest import DETECT


def test_a_timeout_ends_an_attempt_whatever_the_handler_does(world):
    """C33: asleep, in a broad except, returning as if nothing had been, and in one C call."""
    world.ready(2)
    began = time.monotonic()
    runs = {
        verb: world.submit("timeout", {"a": verb})
        for verb in ("sleep:30", "swallow:30", "swallow_once:30", "c_call:30", "coop:30")
    }
    for verb, run_id in runs.items():
        (run,) = world.finish(run_id, timeout=40)
        assert (run.state, run.cause) == ("failed", "timeout"), verb
        attempt = Attempt.objects.get(run=run)
        assert (attempt.finished_at - attempt.started_at).total_seconds() < 1 + 1 + 3, verb
        assert world.ledger.effects("b", run_id) == 0
    assert time.monotonic() - began < 40
    pids = {verb: world.ledger.of("a", ["start"], run_id)[0].pid for verb, run_id in runs.items()}
    assert world.finish(world.submit("solo"))[0].state == "done"
    assert len(set(pids.values())) > 1


def test_a_timeout_is_a_failed_attempt_like_any_other(world):
    world.start()
    run_id = world.submit("timeout", {"a": "sleep:0.5"})
    assert world.finish(run_id)[0].state == "done"


@pytest.mark.parametrize("handler", ["coop_hold:x", "hold:x"])
def test_a_deadline_stops_what_runs(world, handler):
    """C35: the handler that looks, and the one that does not and is killed after the grace."""
    world.ready(2)
    run_id = world.submit("static", {"f": handler, "f/1": "ok"}, deadline=2)
    (run,) = world.finish(run_id, timeout=2 + 1 + DETECT)
    assert (run.state, run.cause, run.stop) == ("failed", "deadline", "deadline")
    rows = {(r.step, r.shard): (r.state, r.cause) for r in run.steps.all()}
    assert rows["f", "1"] == ("done", None)
    assert rows["f", "2"] == ("cancelled", "deadline")
    assert rows["j", ""] == ("skipped", "blocked")
    assert AuditRecord.objects.filter(run=run, action="deadline").count() == 1


def test_a_run_that_is_failing_is_not_kept_alive_past_its_deadline_by_a_deaf_handler(world):
    """I1: the sibling's failure came first and stays the cause; the deadline still ends the wait for the other."""
    world.ready(2)
    run_id = world.submit("parents", {"a": "hold:y; fatal", "b": "hold:x"}, deadline=6)
    world.called("b")
    world.ledger.open("y")
    (run,) = world.finish(run_id, timeout=6 + 1 + DETECT)
    assert (run.state, run.cause) == ("failed", "error")
    assert world.row(run_id, "b").state == "cancelled"


def test_undoing_has_no_deadline(world):
    world.ready(1)
    run_id = world.submit("timer", {"undo": "coop:2"}, deadline=1)
    (run,) = world.finish(run_id)
    assert (run.state, run.cause, run.compensation) == ("failed", "deadline", "done")


def test_many_deadlines_in_one_second_with_two_dispatchers(world):
    """C32."""
    world.ready(1)
    world.live.start_dispatcher()
    for i in range(30):
        world.submit("timer", {}, subject=f"s{i}", deadline=2)
    world.all_end()
    assert Run.objects.filter(state="failed", cause="deadline").count() == 30
    assert AuditRecord.objects.filter(action="deadline").count() == 30
    assert world.ledger.calls("undo") == 30
