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
from tests.harness.races import claim, done, joins, opened, racing, together


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
