"""Things done at one instant on several connections."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orchestrator.core.metric_names import DUPLICATE_COMPLETIONS
from orchestrator.core.states import StepState
from orchestrator.engine import leases, recover, rollup
from orchestrator.engine.db import connect
from orchestrator.engine.operate import cancel_run
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.submit import submit_many
from orchestrator.engine.transitions import Closure
from orchestrator.models import FanOut, Outbox, Run, Step
from tests.engine.conftest import OPERATOR
from tests.engine.racing import claim, done, joins, opened, racing, together
from tests.harness.inline import make_lease


@pytest.mark.parametrize("closers", [2, 3])
def test_the_last_shards_closed_at_once_never_lose_the_join(kit, closers):
    runs = submit_many([{"workflow": "kit-strict", "subject_id": f"s{i}"} for i in range(200)])
    rows = claim(kit.worker.conn, kit.worker.holder, *[(run, "f", 3) for run in runs])


        close_attempts(kit.worker.conn, [done(by_run[run].pop()) for run in runs])
    racing([[[done(by_run[run][i])] for run in runs] for i in range(closers)])
    assert joins("j") == {1: 200}
    assert set(FanOut.objects.values_list("open", "done")) == {(0, 3)}
    assert set(Run.objects.values_list("pending", "node_states")) == {(1, "da")}
    kit.worker.work()
    assert kit.ledger.calls("j") == 200


def test_both_parents_closed_at_once_never_lose_the_join(kit):
    runs = submit_many([{"workflow": "kit-parents", "subject_id": f"s{i}"} for i in range(200)])
    rows = claim(kit.worker.conn, kit.worker.holder, *[(run, step, 1) for run in runs for step in "ab"])
    by_run = {run: sorted((r for r in rows if r.run_id == run), key=lambda r: r.step) for run in runs}
    racing([[[done(by_run[run][i])] for run in runs] for i in range(2)])
    assert joins("j") == {1: 200}
    kit.worker.work()
    assert set(Run.objects.values_list("state", flat=True)) == {"done"}


def test_batches_over_the_same_runs_in_other_orders(kit):
    """C13: closers of many runs at once lock in one order; deadlocks, if any, do not surface."""
    runs = submit_many([{"workflow": "kit-static", "subject_id": f"s{i}"} for i in range(30)])
    rows = claim(kit.worker.conn, kit.worker.holder, *[(run, "f", 3) for run in runs])
    dealt: list[list[Closure]] = [[], [], []]
    for n, run in enumerate(runs):
        for i, row in enumerate(r for r in rows if r.run_id == run):
            dealt[(n + i) % 3].append(done(row))
    for hand in dealt:
        random.Random(7).shuffle(hand)
    racing([[hand[i : i + 10] for i in range(0, 30, 10)] for hand in dealt])
    assert joins("j") == {1: 30}
    kit.worker.work()


def test_the_same_closure_twice_changes_nothing(kit):
    """C01: counted, and nothing else."""
    run_id = kit.submit("strict")
    rows = claim(kit.worker.conn, kit.worker.holder, (run_id, "f", 3))
    for row in rows:
        assert close_attempts(kit.worker.conn, [done(row)]).changed == 1
        again = close_attempts(kit.worker.conn, [done(row)])
        assert (again.changed, again.late) == (0, 1)
    assert FanOut.objects.get().open == 0
    assert {c.metric: c.value for c in rollup.totals()}[DUPLICATE_COMPLETIONS] == 3
    kit.worker.work()
    assert kit.run(run_id).state == "done"
    assert kit.ledger.calls("j") == 1
    assert close_attempts(kit.worker.conn, [done(rows[0])]).late == 1
    assert kit.run(run_id).state == "done"


def test_the_same_row_twice_in_one_batch(kit):
    run_id = kit.submit("strict")
    (row,) = claim(kit.worker.conn, kit.worker.holder, (run_id, "f", 1))
    settled = close_attempts(kit.worker.conn, [done(row), done(row)])
    assert (settled.changed, FanOut.objects.get().open, kit.run(run_id).pending) == (1, 2, 2)
    kit.worker.work()


def test_two_ends_of_one_attempt_at_once(kit):
    """The handler's own end and the reaper's: one counts."""
    runs = submit_many([{"workflow": "kit-tries", "subject_id": f"s{i}"} for i in range(50)])
    rows = claim(kit.worker.conn, kit.worker.holder, *[(run, "a", 1) for run in runs])
    ending = {"cause": "worker_lost", "delay": 0.0, "error": '{"type": "X", "message": "x"}'}
    lost = [done(row, StepState.WAITING, **ending) for row in rows]
    racing([[[done(r)] for r in rows], [[c] for c in lost]])
    done_rows = Step.objects.filter(step="a", state="done").count()
    waiting = Step.objects.filter(step="a", state="waiting").count()
    assert done_rows + waiting == 50
    assert Step.objects.filter(step="b").count() == done_rows
