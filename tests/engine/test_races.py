"""Several connections at once on the same rows: nothing is lost, nothing is done twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections, transaction

from orchestrator.core.errors import Conflict
from orchestrator.core.metric_names import DUPLICATE_COMPLETIONS
from orchestrator.core.states import StepState
from orchestrator.engine import leases, recover, rollup, transitions, waits
from orchestrator.engine.db import Connection, connect
from orchestrator.engine.operate import cancel_run, retry_run
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.submit import submit, submit_many
from orchestrator.engine.transitions import Closure, Ticket
from orchestrator.models import AuditRecord, FanOut, Outbox, Run, Step
from tests.engine.conftest import OPERATOR
from tests.harness.inline import make_lease


def done(row: Any, state: StepState = StepState.DONE, **more: Any) -> Closure:
    """The end of a claimed row."""
    return Closure(row.run_id, row.id, row.attempt, row.token, state, **more)


def claim(conn: Connection, holder: Any, *tickets: tuple[Any, str, int]) -> list[Any]:
    with conn.transaction():
        return transitions.claim(conn, [Ticket(*t) for t in tickets], holder)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Runs the calls at one instant, a thread each; their answers, or what they raised."""
    start = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        start.wait()
        try:
            answers[i] = calls[i]()
        except Exception as problem:  # the test looks at it
            answers[i] = problem
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@contextmanager
def opened(count: int) -> Iterator[list[Connection]]:
    conns = [connect(f"racer {i}") for i in range(count)]
    try:
        yield conns
    finally:
        for conn in conns:
            conn.close()


def racing(closers: list[list[list[Closure]]]) -> None:
    """Each closer has a thread and a connection; the n-th closes of all meet at one instant."""
    meet = threading.Barrier(len(closers))
    problems: list[Exception] = []

    def close(conn: Connection, batches: list[list[Closure]]) -> None:
        for batch in batches:
            meet.wait()
            try:
                close_attempts(conn, batch)
            except Exception as problem:
                problems.append(problem)

    with opened(len(closers)) as conns:
        threads = [threading.Thread(target=close, args=pair) for pair in zip(conns, closers, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems, problems[0]


def joins(step: str) -> Counter[int]:
    """How many runs have so many rows of the step; a lost join has none."""
    rows = Counter(Step.objects.filter(step=step).values_list("run_id", flat=True))
    return Counter(rows[run_id] for run_id in Run.objects.values_list("pk", flat=True))


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


def test_two_people_retry_at_once(kit):
    """C82: a double click is one retry."""
    for _ in range(5):
        run = kit.go("tries", {"a": "always_fail"})
        answers = together(*[lambda pk=run.pk: retry_run(pk, OPERATOR, "click")] * 3)
        assert sorted(type(a).__name__ for a in answers) == ["Conflict", "Conflict", "NoneType"]
        assert kit.run(run.pk).retries == 1
        kit.worker.work()
        assert AuditRecord.objects.filter(run=run, action="retry").count() == 1


def test_cancel_and_cancel_and_retry_at_once(kit):
    run_id = kit.submit("timer")
    kit.worker.work()
    answers = together(*[lambda: cancel_run(run_id, OPERATOR, "click")] * 4)
    assert sum(a is None for a in answers) == 1
    assert all(a is None or isinstance(a, Conflict) for a in answers)
    kit.worker.work()


# Submitting.


def test_one_key_is_one_run(kit):
    for key in ("k1", "k2", "k3"):
        answers = together(*[lambda k=key: submit("kit-solo", "s", {"x": 1}, idempotency_key=k)] * 10)
        assert len(set(answers)) == 1, answers
    assert Run.objects.count() == 3
    assert Step.objects.count() == 3
    kit.worker.work()
    again = submit("kit-solo", "s", {"x": 1}, idempotency_key="k1")
    assert kit.run(again).state == "done", "a repeat answers the same run even when it has ended"
    with pytest.raises(Conflict, match="another subject or input"):
        submit("kit-solo", "s", {"x": 2}, idempotency_key="k1")
    assert submit("kit-chain", "s", {"x": 2}, idempotency_key="k1") != again, "keys are by workflow"
    kit.worker.work()


def test_one_key_twice_in_one_batch(kit):
    one = {"workflow": "kit-solo", "subject_id": "s", "idempotency_key": "k"}
    ids = submit_many([one, one])
    assert ids[0] == ids[1]
    assert Run.objects.count() == 1
    kit.worker.work()


def test_a_key_whose_first_user_rolls_back(kit):
    """The second waits for the first and then makes the run itself."""
    inserted, waiting = threading.Event(), threading.Event()

    def first() -> None:
        with transaction.atomic():
            submit("kit-solo", "s", idempotency_key="k")
            inserted.set()
            waiting.wait(5)
            time.sleep(0.1)
            transaction.set_rollback(True)

    def second() -> Any:
        inserted.wait(5)
        waiting.set()
        return submit("kit-solo", "s", idempotency_key="k")

    _, run_id = together(first, second)
    assert list(Run.objects.values_list("pk", flat=True)) == [run_id]
    kit.worker.work()


def test_a_submit_that_rolls_back_leaves_nothing(kit):
    """C64."""

    class Oops(Exception):
        pass

    with pytest.raises(Oops), transaction.atomic():
        submit("kit-static", "s")
        submit_many([{"workflow": "kit-dynamic", "subject_id": "s"}])
        raise Oops
    assert (Run.objects.count(), Step.objects.count(), FanOut.objects.count(), Outbox.objects.count()) == (0, 0, 0, 0)


def test_a_savepoint_that_rolls_back_leaves_the_others(kit):
    """C64 iii."""
    with transaction.atomic():
        kept = submit("kit-solo", "kept")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            submit("kit-solo", "gone")
            1 / 0  # noqa: B018
        with pytest.raises(Conflict), transaction.atomic():
            submit("kit-solo", "a", idempotency_key="k")
            submit("kit-solo", "b", idempotency_key="k")
        assert not connection.needs_rollback
    assert list(Run.objects.values_list("pk", flat=True)) == [kept]
    kit.worker.work()


def test_nothing_is_seen_before_the_commit(kit):
    """C64 ii."""
    with transaction.atomic():
        run_id = submit("kit-solo", "s")
        kit.worker.work()
        assert kit.ledger.entries() == []
    kit.worker.work()
    assert kit.run(run_id).state == "done"


def test_a_batch_is_all_or_nothing(kit):
    from orchestrator.core.errors import NotFound

    with pytest.raises(NotFound):
        submit_many([{"workflow": "kit-solo", "subject_id": "s"}, {"workflow": "kit-nothing", "subject_id": "s"}])
    assert Run.objects.count() == 0
    assert submit_many([]) == []


# Sweeping.


def test_several_sweepers_do_everything_once(kit):
    """C32: 40 runs past their deadline, 40 lost attempts, 40 due retries; five sweepers."""
    late = [kit.submit("timer", deadline="60s") for _ in range(40)]
    lost = [kit.submit("tries") for _ in range(40)]
    kit.worker.tickets()
    gone = make_lease(kit.worker.conn, "gone")
    claim(kit.worker.conn, gone, *[(run, "a", 1) for run in lost])
    kit.worker.conn.execute("UPDATE workflow_leases SET ended_at = now() WHERE id = %s", [gone.lease_id])
    kit.worker.conn.execute("UPDATE workflow_runs SET deadline_at = now() - interval '1s' WHERE id = ANY(%s)", [late])

    def sweep() -> None:
        conn = connect("sweeper")
        for duty in (recover.enforce_deadlines, recover.reap_lost, recover.wake_due, waits.fire_due):
            duty(conn)
        conn.close()

    assert together(*[sweep] * 5) == [None] * 5
    assert AuditRecord.objects.filter(action="deadline").count() == 40
    assert Run.objects.filter(pk__in=late, state="failed", cause="deadline").count() == 40
    kit.worker.work()
    assert Run.objects.filter(pk__in=lost, state="done").count() == 40
    assert set(Step.objects.filter(run__in=lost, step="a").values_list("attempt", flat=True)) == {2}


def test_timers_fire_once(kit):
    runs = [kit.submit("timer") for _ in range(20)]
    kit.worker.work()
    kit.worker.conn.execute("UPDATE workflow_steps SET ready_at = now() WHERE waiting_for = 'timer'")

    def fire() -> int:
        conn = connect("sweeper")
        fired = waits.fire_due(conn)
        conn.close()
        return fired

    assert sum(together(*[fire] * 4)) == 20
    kit.worker.work()
    assert Run.objects.filter(pk__in=runs, state="done").count() == 20
    assert kit.ledger.calls("b") == 20


def test_one_bad_run_does_not_stop_a_pass(kit):
    """C30."""
    runs = [kit.submit("tries") for _ in range(3)]
    gone = make_lease(kit.worker.conn, "gone")
    kit.worker.tickets()
    claim(kit.worker.conn, gone, *[(run, "a", 1) for run in runs])
    kit.worker.conn.execute("UPDATE workflow_leases SET ended_at = now() WHERE id = %s", [gone.lease_id])
    Run.objects.filter(pk=runs[0]).update(node_states="")
    Step.objects.filter(run=runs[0]).update(max_attempts=1)
    assert recover.reap_lost(kit.worker.conn) == 2
    kit.worker.work()
    assert Run.objects.filter(pk__in=runs[1:], state="done").count() == 2
    Run.objects.filter(pk=runs[0]).update(node_states="ap")
    assert recover.reap_lost(kit.worker.conn) == 1
    assert (kit.run(runs[0]).state, kit.run(runs[0]).cause) == ("failed", "worker_lost")


def test_one_bad_run_does_not_spoil_its_batch(kit):
    for i in range(20):  # proven short, so that the worker takes several at once
        kit.submit("solo", subject=f"warm {i}")
    kit.worker.work()
    runs = [kit.submit("solo") for _ in range(5)]
    Run.objects.filter(pk=runs[2]).update(node_states="")
    refs = kit.worker.tickets()
    kit.worker.drainer.drain(refs)
    assert [kit.run(run).state for run in runs] == ["done", "done", "running", "done", "done"]
    Run.objects.filter(pk=runs[2]).update(node_states="a")
    assert recover.reap_lost(kit.worker.conn) == 1
    assert (kit.run(runs[2]).state, kit.run(runs[2]).cause) == ("failed", "worker_lost")


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_connection_lost_under_a_handler_costs_no_attempt(kit, cut):
    """C70: what has ended is recorded on the next connection; what was claimed with it goes back."""
    run = kit.go("noop-wide", {"l": {"emit": list(range(60))}, "j": "count"})
    assert run.state == "done"
    do = {f"f/{i}": "cut" for i in range(cut)}
    run = kit.go("dynamic", {"l": {"emit": list(range(20))}, "l2": "ok", "j": "cut; count", **do})
    assert (run.state, run.output) == ("done", 20), kit.live.describe(run.pk)
    assert set(run.steps.values_list("attempt", flat=True)) == {1}
    assert kit.ledger.calls("f", run.pk) == 20


def test_a_handler_cannot_spoil_the_connections_of_the_next(kit):
    run = kit.go("chain", {"a": "abort", "b": "abort", "c": "abort; fail:1"})
    assert (run.state, run.cause) == ("failed", "error")
    assert kit.go("chain").state == "done"


def test_an_alarm_in_the_middle_of_a_statement(kit):
    """The handler's reads share the worker's connection with the record."""
    runs = [kit.go("timeout", {"a": "read:5"}) for _ in range(3)]
    assert {(r.state, r.cause) for r in runs} == {("failed", "timeout")}
