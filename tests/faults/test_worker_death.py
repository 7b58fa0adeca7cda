"""Workers that are killed, lost, paused or stopped in the middle of their work."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from orchestrator.models import Attempt, DeadLetter, Run, Step
from tests.faults.conftest import DETECT
from tests.harness.wait import wait_until


def test_a_process_killed_in_its_handler_is_noticed_at_once(world):
    """C22 i: one attempt is lost, the next succeeds, what follows runs once."""
    world.start()
    run_id = world.submit("tries", {"a": "hold1:x"})
    world.called("a")
    world.handler_process("a").kill()
    began = time.monotonic()
    world.called("a", 2)
    assert time.monotonic() - began < 5
    (run,) = world.finish(run_id)
    assert run.state == "done"
    assert (world.ledger.calls("a"), world.ledger.effects("a"), world.ledger.calls("b")) == (2, 1, 1)
    assert list(Attempt.objects.values_list("attempt", "cause")) == [(1, "worker_lost")]


@pytest.mark.parametrize("how", ["tree", "supervisor"])
def test_a_whole_worker_lost_is_noticed_by_its_lease(world, how):
    """C22 ii: nobody is left to say so; another worker finishes."""
    first = world.start()
    run_id = world.submit("tries", {"a": "hold1:x"})
    world.called("a")
    process = world.handler_process("a")
    if how == "tree":
        first.kill_all()
    else:
        first.kill()
        wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 5)
    world.worker()
    (run,) = world.finish(run_id, timeout=DETECT + 10)
    assert run.state == "done"
    assert (world.ledger.calls("a"), world.ledger.effects("a"), world.ledger.calls("b")) == (2, 1, 1)
    assert world.row(run_id, "a").attempt == 2


def test_a_paused_worker_that_comes_back_is_fenced(world):
    """C26, C60: its late result changes nothing, and it takes no more work under its old lease."""
    first = world.start()
    run_id = world.submit("tries", {"a": "hold1:x"})
    world.called("a")
    old = world.handler_process("a")
    first.pause()
    world.worker()
    (run,) = world.finish(run_id, timeout=DETECT + 10)
    assert (run.state, world.row(run_id, "a").attempt) == ("done", 2)
    before = Step.objects.filter(run=run).values("id", "state", "attempt", "finished_at")
    kept = list(before)
    world.ledger.open("x")
    first.resume()
    wait_until(lambda: not old.is_running() or old.status() == psutil.STATUS_ZOMBIE, DETECT + 5)
    assert list(before) == kept
    assert world.ledger.calls("b") == 1
    again = world.submit("solo")
    assert world.finish(again)[0].state == "done"


@pytest.mark.parametrize("handler", ["sleep:1", "coop:1"])
def test_a_warm_stop_lets_the_handler_finish(world, handler):
    first = world.start()
    run_id = world.submit("tries", {"a": handler})
    world.called("a")
    assert first.stop() == 0
    assert (world.row(run_id, "a").state, world.ledger.calls("a")) == ("done", 1)
    assert world.ledger.calls("b") == 0
    world.worker()
    assert world.finish(run_id)[0].state == "done"
    assert Attempt.objects.count() == 0
    assert world.ledger.calls("b") == 1


def test_a_second_signal_ends_the_handler(world):
    """C22 iii: the attempt is lost, not stuck."""
    first = world.start()
    run_id = world.submit("tries", {"a": "hold1:x"})
    world.called("a")
    first.signal(signal.SIGTERM)
    time.sleep(0.3)  # two signals at once would be one
    assert first.is_running()
    first.signal(signal.SIGTERM)
    assert first.popen.wait(10) == 0
    world.worker()
    assert world.finish(run_id)[0].state == "done"
    assert world.ledger.calls("a") == 2


def test_a_fan_out_around_a_shutdown_and_a_ticket_delivered_again(world):
    """C01: the join runs once, whatever is put back and delivered twice."""
    first = world.start(2)
    run_id = world.submit("strict", {"f": "sleep:0.7"})
    world.called("f", 2)
    tickets = world.live.redis.lrange("rq:queue:default", 0, -1)
    first.signal(signal.SIGTERM)
    first.popen.wait(15)
    world.worker()
    definition = Run.objects.get(pk=run_id).definition_id
    for raw in [*tickets, *(f"{run_id}_{definition}_{slot}_f" for slot in (0, 1, 2, 2))]:
        world.live.redis.rpush("rq:queue:default", raw)
    (run,) = world.finish(run_id)
    assert (run.state, run.pending) == ("done", 0)
    assert [world.ledger.calls(f"f/{i}") for i in (1, 2, 3)] == [1, 1, 1]
    assert world.ledger.calls("j") == 1
    wait_until(lambda: world.live.redis.llen("rq:queue:default") == 0, 10)
    assert Attempt.objects.count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("killed", [[0], [29], [0, 14, 29], list(range(10))])
def test_shards_that_kill_their_process_cost_nobody_else_an_attempt(world, killed):
    """First, last, several: in batches of proven-short work as well."""
    world.start(2)
    warm = world.submit("dynamic", {"l": {"emit": list(range(30))}})
    world.finish(warm)
    run_id = world.submit("dynamic", {"l": {"emit": list(range(30))}, **{f"f/{i}": "kill:1" for i in killed}})
    (run,) = world.finish(run_id, timeout=40)
    assert run.state == "done"
    attempts = dict(Step.objects.filter(run=run, step="f").values_list("shard", "attempt"))
    assert {int(s) for s, n in attempts.items() if n > 1} == set(killed)
    assert world.ledger.calls("j", run_id) == 1


@pytest.mark.slow
def test_a_job_that_kills_its_worker_every_time_ends(world):
    """C24: crashes count as attempts; the others finish; the workers live on."""
    worker = world.start(2)
    run_id = world.submit("poison", {"a": "kill"})
    (run,) = world.finish(run_id, timeout=40)
    assert (run.state, run.cause) == ("failed", "worker_lost")
    assert world.ledger.calls("a") == 3
    assert Step.objects.filter(run=run, step="f", state="done").count() == 8
    assert DeadLetter.objects.get().cause == "worker_lost"
    assert len(worker.wait_for_children(2)) >= 2
    assert world.finish(world.submit("solo"))[0].state == "done"


def test_an_undo_killed_in_the_middle_runs_again(world):
    world.start()
    run_id = world.submit("saga-tries", {"b": "fatal", "undo:b": "kill:1"})
    (run,) = world.finish(run_id)
    assert (run.state, run.compensation) == ("failed", "done")
    assert world.ledger.order(run_id, "undo") == ["undo:b", "undo:b", "undo:a"]
