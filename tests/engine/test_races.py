"""Several connections at once on the same rows: nothing is lost, nothing is done twice."""

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
    by_run = {run: [r for r in rows if r.run_id == run] for run in runs}
    if closers == 2:
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
    kit.worker.work()
    assert set(Run.objects.values_list("state", flat=True)) == {"done"}


def test_a_stale_token_or_attempt_closes_nothing(kit):
    run_id = kit.submit("tries")
    (row,) = claim(kit.worker.conn, kit.worker.holder, (run_id, "a", 1))
    for wrong in (done(row)._replace(token=row.token + 1), done(row)._replace(attempt=2)):
        assert close_attempts(kit.worker.conn, [wrong]).changed == 0
    kit.worker.lose()
    recover.wake_due(kit.worker.conn)
    (again,) = claim(kit.worker.conn, kit.worker.holder, (run_id, "a", 1))
    assert again.attempt == 2
    assert close_attempts(kit.worker.conn, [done(row)]).changed == 0, "a paused worker that comes back is fenced"
    assert close_attempts(kit.worker.conn, [done(again)]).changed == 1
    kit.worker.work()


def test_no_row_is_claimed_twice(kit):
    run_id = kit.submit("dynamic", {"l": "numbers"}, input={"n": 300})
    kit.worker.step()
    while Step.objects.filter(step="f").count() == 0:
        kit.worker.step()
    Step.objects.filter(step="f").update(state="queued", finished_at=None, token=None, lease_id=None, attempt=0)
    with opened(6) as conns:
        holders = [make_lease(c, f"w{i}") for i, c in enumerate(conns)]

        def take(i: int) -> list[int]:
            got: list[int] = []
            while rows := claim(conns[i], holders[i], (run_id, "f", random.randint(1, 9))):
                got += [r.id for r in rows]
            return got

        answers = together(*[lambda i=i: take(i) for i in range(6)])
    taken = [row for answer in answers for row in answer]
    assert len(taken) == len(set(taken)) == 300
    assert set(Step.objects.filter(step="f").values_list("attempt", flat=True)) == {1}
    Run.objects.all().delete()  # the rows were put back by hand: nothing of it is to be checked
    Outbox.objects.all().delete()


@pytest.mark.parametrize("round_", range(3))
def test_cancel_racing_claims_settlements_and_expansion(kit, round_):
    """C47: nothing is opened after the cancel, and nothing stays open."""
    runs = submit_many(
        [{"workflow": "kit-dynamic", "subject_id": f"s{i}", "input": {"do": {}, "n": 3}} for i in range(40)]
    )
    rows = claim(kit.worker.conn, kit.worker.holder, *[(run, "l", 1) for run in runs])

    def settle_all() -> None:
        conn = connect("settler")
        for row in rows:
            close_attempts(conn, [done(row, output="[1,2,3]")])
        conn.close()

    def claim_all() -> list[Any]:
        conn = connect("claimer")
        got = [row for run in runs for row in claim(conn, kit.worker.holder, (run, "f", 2))]
        conn.close()
        return got

    def cancel_all() -> None:
        for run in runs:
            cancel_run(run, OPERATOR, "race")

    _, held, cancelled = together(settle_all, claim_all, cancel_all)
    assert cancelled is None, cancelled
    assert not Step.objects.filter(run__stop="cancel", state__in=["queued", "pending", "waiting"]).exists()
    for row in held:
        close_attempts(kit.worker.conn, [done(row)])
    assert set(Run.objects.values_list("state", flat=True)) == {"cancelled"}
    kit.worker.work()
    assert kit.ledger.entries() == []


def test_what_is_given_back_to_a_cancelled_run_is_closed(kit):
    """A claim that was never begun, and a cancel meanwhile: no row stays queued that nobody may claim."""
    run_id = kit.submit("strict")
    rows = claim(kit.worker.conn, kit.worker.holder, (run_id, "f", 2))
    kit.cancel(run_id)
    assert kit.run(run_id).pending == 2
    assert leases.give_back(kit.worker.conn, [(r.id, r.attempt, r.token) for r in rows]) == 2
    assert kit.run(run_id).state == "cancelled"
    assert Step.objects.filter(attempt__gt=0).count() == 0
    kit.worker.work()


def test_what_is_given_back_runs_without_an_attempt_spent(kit):
    run_id = kit.submit("strict")
    rows = claim(kit.worker.conn, kit.worker.holder, (run_id, "f", 3))
    kit.worker.tickets()
    leases.give_back(kit.worker.conn, [(r.id, r.attempt, r.token) for r in rows])
    kit.worker.work()
    assert kit.run(run_id).state == "done"
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}
