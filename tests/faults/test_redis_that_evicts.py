"""C68: a Redis too small for what it is given, which throws away what was not used lately."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from orchestrator.models import Attempt, Run, Step
from tests.harness.own_redis import OwnRedis, redis_of_its_own


@pytest.fixture
def small(world, settings, tmp_path):
    """One with 5 MB, much of which it needs for itself and its clients."""
    given = {"maxmemory": "5mb", "maxmemory_policy": "allkeys-lru"}
    with redis_of_its_own(world.live, settings, tmp_path, **given) as own:
        yield own


def fill(own: OwnRedis, stop: threading.Event) -> None:
    """Other people's keys push out ours, in bursts, with time between them to notice."""
    n = 0
    while not stop.is_set():
        for _ in range(60):
            n += 1
            own.client.set(f"other:{n}", b"x" * 100_000)
        stop.wait(1.5)


def test_tickets_that_are_evicted_are_issued_again(world, small):
    """Everything ends, everything has one effect, and no attempt is spent on it."""
    worker = world.start(2)
    world.finish(world.submit("solo"))
    warned = "Redis may evict tickets: maxmemory-policy is allkeys-lru"
    dispatcher = next(process for process in world.live.processes if process.name == "dispatcher")
    assert warned in worker.output() and warned in dispatcher.output()
    stop = threading.Event()
    filler = threading.Thread(target=fill, args=(small, stop))
    filler.start()
    try:
        runs = [world.submit("chain", {"*": "sleep:0.05"}, subject=f"s{i}") for i in range(40)]
        world.until(lambda: small.client.info("stats")["evicted_keys"] > 200)
        world.all_end()
    finally:
        stop.set()
        filler.join()
    ended = Counter((e.run, e.step) for e in world.ledger.entries() if e.event == "end")
    assert {(run, step): ended[str(run), step] for run in runs for step in "abcde"} == {
        (run, step): 1 for run in runs for step in "abcde"
    }
    assert set(Run.objects.values_list("state", flat=True)) == {"done"}
    assert set(Step.objects.values_list("attempt", flat=True)) == {1} and not Attempt.objects.exists()


def test_an_evicted_queue_is_made_again_within_ten_seconds(world, small):
    """The queue's key alone goes: the sentinel is still there, so the age of what is queued has to tell."""
    world.live.start_dispatcher()
    runs = [world.submit("solo", subject=f"s{i}") for i in range(20)]
    world.until(lambda: small.client.llen("rq:queue:default") >= 20)
    small.client.delete("rq:queue:default")
    world.until(lambda: small.client.llen("rq:queue:default") >= 20, timeout=10)
    world.worker()
    assert {run.state for run in world.finish(*runs)} == {"done"}
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}
