"""Cases whose recipe is larger than their quick test: the same, at the size that was reported from the field."""

from __future__ import annotations

import random
import time

import pytest

from orchestrator.models import Attempt, AuditRecord, Run, Step
from tests.faults.conftest import DETECT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_two_joins_on_fifty_and_fifty_shards_that_end_at_one_instant(world):
    """C13: sixteen processes, twenty runs; no completion is lost, whatever the database had to give up."""
    world.ready(16)
    for round_ in range(4):
        instant = time.time() + 4
        meet = dict.fromkeys("fg", f"meet:{instant}")
        runs = [
            world.submit("diamond", {"l": "numbers", **meet}, subject=f"r{round_}/{i}", input={"n": 50})
            for i in range(5)
        ]
        for run in world.finish(*runs, timeout=120):
            assert (run.state, run.pending) == ("done", 0)
    assert set(Step.objects.exclude(run__workflow="kit-solo").values_list("state", "attempt")) == {("done", 1)}
    runs = Run.objects.filter(workflow="kit-diamond").values_list("pk", flat=True)
    calls = [world.ledger.calls(step, run) for run in runs for step in ("j1", "j2")]
    assert calls == [1] * 40
    assert world.ledger.effects("f") == world.ledger.effects("g") == 1000
    assert not Attempt.objects.exists()


def test_workers_that_are_paused_around_the_end_of_their_leases(world):
    """C26: a hundred runs, each attempt about as long as a lease; nothing that has ended is ever taken back."""
    dice = random.Random(26)
    world.live.start_dispatcher()
    workers = [world.worker(4) for _ in range(3)]
    runs = [world.submit("tries", {"a": f"sleep:{dice.uniform(1.5, 2.5):.2f}"}, subject=f"s{i}") for i in range(100)]
    ended: dict[int, tuple[str, int]] = {}
    steps = Step.objects.filter(run__in=runs)

    def look() -> bool:
        rows = {pk: (state, attempt) for pk, state, attempt in steps.values_list("pk", "state", "attempt")}
        changed = {pk: (was, rows[pk]) for pk, was in ended.items() if rows[pk] != was}
        assert not changed
        ended.update({pk: row for pk, row in rows.items() if row[0] in ("done", "failed")})
        return not Run.objects.filter(pk__in=runs, finished_at=None).exists()

    until = time.monotonic() + 240
    while not look() and time.monotonic() < until:
        worker = dice.choice(workers)
        worker.pause()
        time.sleep(dice.uniform(1.7, 3.5))  # the lease is of two seconds, a sweep comes every 0.3
        worker.resume()
        time.sleep(dice.uniform(0, 1))
        workers = [w for w in workers if w.is_running()] or [world.worker(4)]
    world.all_end(DETECT + 60)
    look()
    for run in Run.objects.filter(pk__in=runs):
        called = world.ledger.calls("a", run.pk)
        assert called <= world.row(run.pk, "a").attempt <= 3  # a worker may be lost between its claim and the call
        assert world.ledger.calls("b", run.pk) == 1 if run.state == "done" else run.cause == "worker_lost"
    assert Run.objects.filter(pk__in=runs, state="done").count() > 50
    assert {a.cause for a in Attempt.objects.filter(run__in=runs)} <= {"worker_lost"}
    assert AuditRecord.objects.filter(run__in=runs, action="state").count() == 100
