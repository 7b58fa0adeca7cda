"""Pauses with real processes: steps stay queued and spend nothing, and go on at once when the pause has ended."""

from __future__ import annotations

import time

import pytest

from orchestrator.engine.operate import pause, resume
from orchestrator.models import Attempt, Pause, Run, Step
from tests.faults.conftest import OPERATOR
from tests.harness.wait import wait_until

QUEUE = "rq:queue:right"
#: Promised is two seconds; a machine that tests share gets some more.
AT_ONCE = 2.0 + 2.0
#: Workers know of a pause after a second.
KNOWN = 1.2


def held(world, runs, step, seconds=0.0):
    """All of them stand before the step, queued with no attempt, and stay so."""
    rows = Step.objects.filter(run__in=runs, step=step)
    world.until(lambda: rows.filter(state="queued").count() == len(runs))
    time.sleep(seconds)
    assert set(rows.values_list("state", "attempt")) == {("queued", 0)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("queue", "right"), ("workflow", "kit-queues")])
def test_paused_work_stays_queued_and_resumes_at_once(world, kind, name):
    world.ready(2)
    world.worker(1, "left", "right")
    wait_until(lambda: world.live.redis.scard("rq:workers") >= 3, 20)
    step = "b" if kind == "queue" else "a"
    pause(kind, name, 3600, OPERATOR, "test")
    time.sleep(KNOWN)
    runs = [world.submit("queues", subject=f"s{i}") for i in range(20)]
    free = world.submit("solo")
    assert world.finish(free)[0].state == "done"
    held(world, runs, step, 5.0)  # long enough for tickets to count as lost
    assert world.live.redis.llen(QUEUE) == 0 and world.live.redis.llen("rq:queue:left") == 0
    began = time.monotonic()
    resume(kind, name, OPERATOR)
    wait_until(lambda: world.ledger.calls(step) > 0, 10)
    assert time.monotonic() - began < AT_ONCE
    world.all_end()
    assert set(Step.objects.filter(run__in=runs).values_list("state", "attempt")) == {("done", 1)}
    assert not Attempt.objects.exists() and not Pause.objects.exists()


def test_a_pause_ends_by_itself(world):
    world.ready(1)
    pause("workflow", "kit-chain", 5, OPERATOR, "test")
    ends = time.monotonic() + 5
    time.sleep(KNOWN)
    run_id = world.submit("chain")
    held(world, [run_id], "a")
    wait_until(lambda: world.ledger.calls("a", run_id) == 1, 15)
    assert -0.1 < time.monotonic() - ends < AT_ONCE
    assert world.finish(run_id)[0].state == "done"


def test_what_runs_finishes_and_redis_emptied_brings_nothing_back(world):
    world.ready(1)
    run_id = world.submit("chain", {"b": "hold:go"})
    world.called("b", run=run_id)
    pause("queue", "default", 3600, OPERATOR, "test")
    world.live.redis.flushdb()
    time.sleep(KNOWN)
    world.ledger.open("go")
    world.until(lambda: world.row(run_id, "b").state == "done")
    held(world, [run_id], "c", 3.0)
    resume("queue", "default", OPERATOR)
    assert world.finish(run_id)[0].state == "done"


def test_a_paused_workflow_undoes_and_a_paused_queue_does_not(world):
    world.ready(1)
    run_id = world.submit("saga", {"b": "hold:go"})
    world.called("b", run=run_id)
    pause("workflow", "kit-saga", 3600, OPERATOR, "test")
    time.sleep(KNOWN)
    world.ledger.open("go")
    world.until(lambda: world.row(run_id, "b").state == "done")
    held(world, [run_id], "c", 0.5)
    world.cancel(run_id)
    (run,) = world.finish(run_id)
    assert (run.state, run.compensation) == ("cancelled", "done")

    other = world.submit("chain", {"a": "hold:later"})
    world.called("a", run=other)
    saga = world.submit("saga")
    pause("queue", "default", 3600, OPERATOR, "test")
    resume("workflow", "kit-saga", OPERATOR)
    time.sleep(KNOWN)
    world.cancel(saga)
    world.ledger.open("later")
    assert world.finish(saga)[0].state == "cancelled"
    time.sleep(1.5)
    assert Run.objects.get(pk=other).state == "running"
    resume("queue", "default", OPERATOR)
    assert world.finish(other)[0].state == "done"


def test_many_shards_go_on_with_all_workers(world):
    world.ready(2)
    run_id = world.submit("window", {"l": {"emit": list(range(6))}, "f": "sleep:0.3; hold:go"})
    world.until(lambda: Step.objects.filter(run=run_id, step="f", state="running").count() == 2)
    pause("workflow", "kit-window", 3600, OPERATOR, "test")
    time.sleep(KNOWN)
    world.ledger.open("go")
    world.until(lambda: Step.objects.filter(run=run_id, step="f", state="queued").count() == 2)
    time.sleep(1.0)
    resume("workflow", "kit-window", OPERATOR)
    assert world.finish(run_id)[0].state == "done"
    assert len({entry.pid for entry in world.ledger.of("f", ("start",), run_id)}) == 2
