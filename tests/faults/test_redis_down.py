"""No Redis for a while: what needs only the record goes on, and work is taken up when it is back."""

from __future__ import annotations

import pytest
from rq import SimpleWorker

from orchestrator.models import Attempt, Run
from orchestrator.transport.worker import TicketWorker
from tests.faults.conftest import DETECT
from tests.harness.own_redis import redis_of_its_own
from tests.harness.wait import wait_until


@pytest.fixture
def own(world, settings, tmp_path):
    """A Redis of this test's own; what it held is gone when it comes back."""
    with redis_of_its_own(world.live, settings, tmp_path) as own:
        yield own


def test_a_worker_asks_again_soon_however_long_redis_was_away():
    """RQ's own waits grow to a minute."""
    assert TicketWorker.max_connection_wait_time <= 5 < SimpleWorker.max_connection_wait_time


def test_deadlines_cancels_and_lost_workers_need_no_redis(world, own):
    """C68's neighbour: the relay has tickets that it cannot hand over all the while."""
    worker = world.start(1)
    lost = world.submit("static", {"f/1": "hold1:x"})
    world.called("f/1", run=lost)
    own.kill()
    dispatcher = next(process for process in world.live.processes if process.name == "dispatcher")
    late = world.submit("solo", subject="late", deadline=1)
    dispatcher.wait_for_line("Redis not reachable, tried again in")
    waits = world.submit("solo", subject="waits")
    worker.kill_all()
    world.until(lambda: world.row(lost, "f", "1").cause == "worker_lost", DETECT + 5)
    (run,) = world.finish(late, timeout=1 + DETECT)
    assert (run.state, run.cause) == ("failed", "deadline")
    dropped = world.submit("solo", subject="dropped")
    world.cancel(dropped)
    assert world.finish(dropped)[0].state == "cancelled"
    assert Run.objects.get(pk=waits).state == "running"
    own.start()
    world.worker(2)
    assert {run.state for run in world.finish(lost, waits)} == {"done"}
    assert world.row(waits, "a").attempt == 1
    assert dispatcher.is_running()


@pytest.mark.slow
def test_a_redis_that_hangs_does_not_hang_the_dispatcher(world, own):
    """It takes connections and says nothing."""
    dispatcher = world.live.start_dispatcher()
    first = world.submit("solo")
    wait_until(lambda: own.client.llen("rq:queue:default") >= 1, 15)
    own.pause()
    late = world.submit("solo", subject="late", deadline=1)
    (run,) = world.finish(late, timeout=1 + 10 + DETECT)
    assert (run.state, run.cause) == ("failed", "deadline")
    own.resume()
    world.worker()
    assert world.finish(first)[0].state == "done" and dispatcher.is_running()


def test_a_redis_that_goes_under_a_ticket_costs_no_process(world, own):
    """The slice of time is over when the handler ends, so the rest of the ticket goes back to a Redis that is gone."""
    world.start(1)
    run_id = world.submit("static", {"f/1": "sleep:1.5; hold:x"})
    world.called("f/1")
    own.kill()
    world.ledger.open("x")
    world.until(lambda: world.row(run_id, "f", "1").state == "done")
    own.start()
    assert world.finish(run_id)[0].state == "done"
    assert len({entry.pid for entry in world.ledger.of("f", ["start"])}) == 1
    assert not Attempt.objects.exists()
