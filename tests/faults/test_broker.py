"""Redis emptied, tickets lost and doubled, dispatchers killed, database connections cut: nothing is lost or doubled."""

from __future__ import annotations

import random
import threading
import time

from django.db import connection, transaction

from orchestrator.models import Attempt, Run, Step
from tests.harness.wait import wait_until

QUEUE = "rq:queue:default"


def tickets(world):
    """Steps that have a ticket: one may be there twice, published both from the outbox and after an emptied Redis."""
    return set(world.live.redis.lrange(QUEUE, 0, -1))


def exactly_once(world, runs, steps="abcde"):
    """Every step of every run has one effect and one attempt."""
    counts = {}
    for entry in world.ledger.entries():
        if entry.event == "end":
            counts[entry.run, entry.step] = counts.get((entry.run, entry.step), 0) + 1
    assert counts == {(str(run), step): 1 for run in runs for step in steps}
    assert set(Step.objects.filter(run__in=runs).values_list("state", "attempt")) == {("done", 1)}


def test_redis_emptied_under_load(world):
    """C68: twice, with runs in all stages; no retry is spent on it."""
    world.start(2)
    runs = [world.submit("chain", {"*": "sleep:0.01"}, subject=f"s{i}") for i in range(60)]
    for share in (30, 120):
        world.until(lambda share=share: len(world.ledger.entries()) > share)
        world.live.redis.flushdb()
    world.all_end()
    exactly_once(world, runs)
    assert world.live.redis.exists("rq:workers") or world.finish(world.submit("solo"))


def test_redis_emptied_while_nobody_works(world):
    world.live.start_dispatcher()
    runs = [world.submit("chain", subject=f"s{i}") for i in range(5)]
    wait_until(lambda: len(tickets(world)) == 5, 15)
    world.live.redis.flushdb()
    wait_until(lambda: len(tickets(world)) == 5, 10)
    world.worker()
    world.all_end()
    exactly_once(world, runs)


def test_a_lost_ticket_is_issued_again(world):
    """A ticket popped by a worker that dies, or evicted: the sentinel is still there."""
    world.live.start_dispatcher()
    runs = [world.submit("chain", subject=f"s{i}") for i in range(4)]
    wait_until(lambda: len(tickets(world)) == 4, 15)
    for raw in list(tickets(world))[:3]:
        world.live.redis.lrem(QUEUE, 0, raw)
    wait_until(lambda: len(tickets(world)) == 4, 15)
    world.worker()
    world.all_end()
    exactly_once(world, runs)


def test_doubled_late_and_foreign_tickets_change_nothing(world):
    """C66: the claim decides, not the ticket."""
    world.live.start_dispatcher()
    runs = [world.submit("chain", subject=f"s{i}") for i in range(10)]
    wait_until(lambda: len(tickets(world)) == 10, 15)
    sent = world.live.redis.lrange(QUEUE, 0, -1)
    junk = [b"", b"nonsense", b"a_b_c_d", "ü".encode(), b"00000000-0000-0000-0000-000000000000_999999_0_a"]
    for raw in [*sent, *sent, *junk, *sent]:
        world.live.redis.rpush(QUEUE, raw)
    world.worker(2)
    world.all_end()
    for raw in sent:
        world.live.redis.rpush(QUEUE, raw)
    wait_until(lambda: world.live.redis.llen(QUEUE) == 0, 15)
    exactly_once(world, runs)
    assert Attempt.objects.count() == 0


def test_two_dispatchers_of_which_the_leader_is_killed(world):
    """C66: everything is published, nothing runs twice."""
    first, second = world.live.start_dispatcher(), None
    worker = world.worker(2)
    runs = [world.submit("chain", {"*": "sleep:0.005"}, subject=f"s{i}") for i in range(40)]
    world.called("a", 3)
    second = world.live.start_dispatcher()
    world.called("a", 10)
    first.kill()
    world.all_end()
    exactly_once(world, runs)
    assert second.is_running()
    assert worker.is_running()
    late = world.submit("chain")
    assert world.finish(late)[0].state == "done"


def test_no_dispatcher_for_a_while(world):
    """What workers go on with by themselves goes on; the rest waits in the outbox."""
    world.worker()
    runs = [world.submit("queues", subject=f"s{i}") for i in range(5)]
    dispatcher = world.live.start_dispatcher()
    world.worker(1, "left", "right")
    world.called("a")
    dispatcher.kill()
    more = [world.submit("queues", subject=f"t{i}") for i in range(5)]
    world.live.start_dispatcher()
    world.all_end()
    exactly_once(world, [*runs, *more], "abc")


def test_database_connections_cut_under_load(world):
    """C70: every connection of workers and dispatcher, several times; nothing is lost, nothing counted twice."""
    world.start(2)
    runs = [world.submit("chain", {"*": "sleep:0.01"}, subject=f"s{i}") for i in range(50)]
    for share in (20, 120, 250, 400):
        world.until(lambda share=share: len(world.ledger.entries()) > share)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    world.all_end()
    assert Run.objects.filter(pk__in=runs, state="done").count() == 50
    assert set(Step.objects.filter(run__in=runs).values_list("state", "attempt")) == {("done", 1)}
    assert world.ledger.effects("e") >= 50


def test_a_run_is_not_touched_before_its_transaction_commits(world):
    """C64 ii, with real workers waiting for it."""
    world.start()
    first = world.submit("solo")
    world.finish(first)
    with transaction.atomic():
        held = world.submit("solo")
        thread = threading.Thread(target=lambda: world.finish(world.submit("chain")))
        thread.start()
        thread.join()  # another client's run has gone all its way meanwhile
        assert world.ledger.calls("e") == 1
        assert world.ledger.calls("a", held) == 0
    assert world.finish(held)[0].state == "done"
    assert world.ledger.calls("a", held) == 1


def test_shards_that_end_at_one_instant(world):
    """C13: two joins on the same two fan-outs, six processes."""
    world.start(6)
    warm = world.submit("diamond", {"l": "numbers"}, input={"n": 12})
    world.finish(warm)
    instant = time.time() + 1.5
    meet = {step: f"meet:{instant + random.random() / 100}" for step in "fg"}
    runs = [world.submit("diamond", {"l": "numbers", **meet}, subject=f"s{i}", input={"n": 4}) for i in range(8)]
    world.all_end()
    for run_id in runs:
        assert [world.ledger.calls(s, run_id) for s in ("f", "g", "j1", "j2")] == [4, 4, 1, 1]
    assert set(Step.objects.filter(run__in=runs).values_list("state", "attempt")) == {("done", 1)}
