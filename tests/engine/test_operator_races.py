"""People, submitters and sweepers at the same instant; connections that are lost in the middle."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction

from orchestrator.core.errors import Conflict
from orchestrator.engine import recover, waits
from orchestrator.engine.db import connect
from orchestrator.engine.operate import cancel_run, retry_run
from orchestrator.engine.submit import submit, submit_many
from orchestrator.models import AuditRecord, FanOut, Outbox, Run, Step
from tests.engine.conftest import OPERATOR
from tests.engine.racing import claim, together
from tests.harness.inline import make_lease


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
    while refs:
        refs = kit.worker.drainer.drain(refs)
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
