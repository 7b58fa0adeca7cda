"""A failed run that waits for an operator before it is undone."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict


def held(kit):
    run = kit.go("held", {"b": "fail_until:x"})
    assert (run.state, run.compensation, run.cause) == ("compensating", "pending", "error")
    assert run.hold_until is not None and run.pending == 0 and kit.ledger.calls("undo") == 0
    return run


def test_its_time_runs_out_and_it_is_undone(kit):
    run = held(kit)
    kit.worker.conn.execute("UPDATE workflow_runs SET hold_until = now() WHERE id = %s", [run.pk])
    kit.worker.work()
    run = kit.run(run.pk)
    assert (run.state, run.compensation, kit.ledger.calls("undo")) == ("failed", "done", 1)


def test_a_retry_goes_on_without_an_undo(kit):
    run = held(kit)
    kit.ledger.open("x")
    run = kit.retry(run)
    assert (run.state, run.compensation, run.hold_until) == ("done", None, None)
    assert kit.ledger.calls("undo") == 0 and kit.ledger.calls("a") == 1 and kit.ledger.calls("b") == 2


def test_a_cancel_begins_the_undo_at_once(kit):
    run = held(kit)
    kit.cancel(run)
    kit.worker.work()
    run = kit.run(run.pk)
    assert (run.state, run.cause, run.compensation) == ("failed", "error", "done")
    with pytest.raises(Conflict):
        kit.cancel(run)


def test_the_deadline_counts_no_more(kit):
    run = held(kit)
    kit.worker.elapse(10 * 86_400)
    run = kit.run(run.pk)
    assert (run.state, run.cause, run.deadline_missed_at) == ("compensating", "error", None)


def test_a_cancelled_run_is_not_held(kit):
    run_id = kit.submit("held")
    kit.worker.work(until=lambda: kit.ledger.calls("a"))
    kit.cancel(run_id)
    kit.worker.work()
    assert kit.run(run_id).state in ("cancelled", "done")
