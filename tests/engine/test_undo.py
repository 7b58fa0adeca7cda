"""Undo: its order, what stops it, what failed for good, and what a retry makes of it."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound
from orchestrator.engine.operate import (
    Actor,
    cancel_run,
    preview_cancel,
    retry_run,
)
from orchestrator.models import AuditRecord, DeadLetter
from tests.engine.conftest import OPERATOR

UNDONE = ["undo:c", "undo:b", "undo:a", "undo:on_failure", "undo:on_failure:2"]


def test_undo_runs_in_reverse_order_of_start_then_the_list(kit):
    run = kit.go("saga", {"d": "always_fail"})
    assert (run.state, run.compensation, run.node_states) == ("failed", "done", "dddf")
    assert kit.ledger.order() == ["a", "b", "c", "d", *UNDONE]
    assert [kit.ledger.of(f"undo:{s}", ["undo"])[0].note for s in "cba"] == [[True, "done"]] * 3
    assert run.cause == "error"


def test_a_step_that_failed_is_undone_too_and_told_so(kit):
    """C50: after the last attempt, once."""
    run = kit.go("saga-tries", {"b": "always_fail"})
    assert run.state == "failed"
    assert kit.ledger.order() == ["a", "b", "b", "b", "undo:b", "undo:a"]
    assert kit.ledger.of("undo:b", ["undo"])[0].note == [False, "failed"]


def test_no_failure_no_undo(kit):
    run = kit.go("saga-tries", {"b": "fail:2"})
    assert (run.state, run.compensation) == ("done", None)
    assert kit.ledger.calls("undo:a") == 0


def test_a_step_that_never_started_is_not_undone(kit):
    run = kit.go("saga", {"b": "always_fail"})
    assert kit.ledger.order()[2:] == ["undo:b", "undo:a", "undo:on_failure", "undo:on_failure:2"]
    assert run.node_states == "dfbb"


def test_shards_are_undone_one_by_one_with_their_items(kit):
    run = kit.go("saga-fan", {"f/2": "always_fail"})
    assert run.compensation == "done"
    undone = kit.ledger.order(None, "undo")
    assert sorted(undone[:-1]) == ["undo:f/1", "undo:f/2", "undo:f/3"]
    assert undone[-1] == "undo:a"
    assert {e.shard: e.note for e in kit.ledger.of("undo:f", ["undo"])}["2"] == [False, "failed"]


def test_an_undo_that_fails_for_good_does_not_stop_the_others(kit):
    """C21, C52."""
    run = kit.go("saga", {"d": "always_fail", "undo:b": "always_fail", "undo:on_failure": "fatal"})
    assert (run.state, run.compensation) == ("failed", "partial")
    assert kit.ledger.order(None, "undo") == [
        "undo:c",
        "undo:b",
        "undo:b",
        "undo:a",
        "undo:on_failure",
        "undo:on_failure:2",
    ]
    assert set(DeadLetter.objects.values_list("step", flat=True)) == {"d", "undo:b", "undo:on_failure"}
    assert run.cause == "error"
    assert run.error["step"] == "d", "the first cause stays"


def test_every_undo_fails_and_the_run_still_ends(kit):
    do = {f"undo:{s}": "always_fail" for s in ("a", "b", "c", "on_failure", "on_failure:2")}
    run = kit.go("saga", {"d": "always_fail", **do})
    assert (run.state, run.compensation) == ("failed", "partial")
    assert DeadLetter.objects.count() == 6


def test_a_killed_undo_is_tried_again(kit):
    run_id = kit.submit("saga-tries", {"b": "always_fail"})
    kit.worker.work(until=lambda: kit.run(run_id).state == "compensating")
    kit.worker.conn.execute("UPDATE workflow_steps SET max_attempts = max_attempts WHERE run_id = %s", [run_id])
    kit.worker.work()
    assert kit.run(run_id).state == "failed"


# Cancel.


def test_cancel_before_anything_started(kit):
    run_id = kit.submit("saga")
    kit.cancel(run_id)
    run = kit.run(run_id)
    assert (run.state, run.cause, run.compensation, run.node_states) == ("cancelled", "cancelled", None, "cbbb")
    kit.worker.work()
    assert kit.ledger.entries() == []
    assert DeadLetter.objects.count() == 0


def test_cancel_of_a_delayed_run(kit):
    run_id = kit.submit("saga", delay="1h")
    kit.cancel(run_id)
    assert (kit.run(run_id).state, kit.run(run_id).node_states) == ("cancelled", "bbbb")
    kit.worker.elapse(3700)
    assert kit.ledger.entries() == []


def test_cancel_in_a_retry_wait_ends_the_run_at_once(kit):
    """C45: and the attempt never comes back."""
    run_id = kit.submit("later", {"a": "always_fail"})
    kit.worker.work()
    kit.cancel(run_id)
    assert kit.run(run_id).state == "cancelled"
    kit.worker.elapse(10_000)
    assert kit.ledger.calls("a") == 1
    assert kit.states(run_id) == {"a": "cancelled", "b": "skipped"}


def test_cancel_at_a_timer_undoes_what_was_done(kit):
    """C48."""
    run = kit.go("timer", {"undo": "check"})
    kit.cancel(run)
    assert kit.run(run.pk).state == "compensating"
    kit.worker.work()
    run = kit.run(run.pk)
    assert (run.state, run.compensation, run.node_states) == ("cancelled", "done", "dcb")
    assert kit.ledger.order() == ["a", "undo"]
    kit.worker.elapse(4000)
    assert kit.ledger.calls("b") == 0


@pytest.mark.parametrize("claimed", [0, 1, 2, 3])
def test_cancel_with_some_shards_in_hand(kit, claimed):
    """Queued ones are cancelled at once, claimed ones when their attempt ends: a result after the cancel counts."""
    from orchestrator.core.states import StepState
    from orchestrator.engine.settle import close_attempts
    from orchestrator.engine.transitions import Closure, Ticket, claim

    run_id = kit.submit("strict")
    rows = claim(kit.worker.conn, [Ticket(run_id, "f", claimed)], kit.worker.holder)
    kit.cancel(run_id)
    assert kit.run(run_id).pending == claimed
    assert kit.run(run_id).state == ("running" if claimed else "cancelled")
    endings = [StepState.DONE, StepState.FAILED, StepState.WAITING]
    for r, state in zip(rows, endings, strict=False):
        cause, delay = (None if state == "done" else "error"), (5.0 if state == "waiting" else None)
        close_attempts(kit.worker.conn, [Closure(r.run_id, r.id, r.attempt, r.token, state, cause, delay)])
    run = kit.run(run_id)
    assert (run.state, run.cause) == ("cancelled", "cancelled")
    ended = ["done"][:claimed] + ["cancelled"] * (3 - min(claimed, 1))
    assert sorted(kit.states(run_id).values()) == sorted([*ended, "skipped"])
    assert DeadLetter.objects.count() == 0
    kit.worker.work()
    assert kit.ledger.entries() == []


def test_a_second_cancel_is_refused(kit):
    run = kit.go("timer")
    kit.cancel(run)
    before = AuditRecord.objects.count()
    with pytest.raises(Conflict, match="undoing what it did already"):
        kit.cancel(run)
    kit.worker.work()
    with pytest.raises(Conflict, match="cancelled already"):
        kit.cancel(run)
    with pytest.raises(Conflict, match="cancelled already"):
        kit.cancel(run, force=True)
    assert AuditRecord.objects.filter(action="cancel").count() == 1
    assert AuditRecord.objects.count() == before + 1, "only the run's end came after"


def test_cancel_of_a_finished_run_is_refused(kit):
    run = kit.go("solo")
    with pytest.raises(Conflict, match="done already"):
        kit.cancel(run)


def test_who_may_and_why(kit):
    run_id = kit.submit("solo")
    with pytest.raises(NotAllowed):
        cancel_run(run_id, Actor("sue", "support"), "x")
    with pytest.raises(Invalid):
        cancel_run(run_id, OPERATOR, "  ")
    with pytest.raises(NotFound):
        cancel_run("nonsense", OPERATOR, "x")
    with pytest.raises(NotAllowed):
        retry_run(run_id, Actor("sue", "support"), "x")
    assert kit.run(run_id).stop is None
    kit.worker.work()


def test_the_preview_of_a_cancel_says_what_it_does(kit):
    run = kit.go("timer")
    preview = preview_cancel(run.pk)
    assert [(u.step, u.handler) for u in preview.undo] == [("a", "undo")]
    kit.cancel(run)
    kit.worker.work()
    assert kit.ledger.order(None, "undo") == ["undo"]


# Deadline.


def test_a_deadline_stops_a_run_once(kit):
    from orchestrator.engine import recover

    run = kit.go("timer", deadline="60s")
    kit.worker.elapse(61)
    run = kit.run(run.pk)
    assert (run.state, run.cause, run.stop, run.compensation) == ("failed", "deadline", "deadline", "done")
    assert kit.states(run) == {"a": "done", "w": "cancelled", "b": "skipped", "undo": "done"}
    assert kit.row(run, "w").cause == "deadline"
    assert recover.enforce_deadlines(kit.worker.conn) == 0
    assert AuditRecord.objects.filter(run=run, action="deadline").count() == 1
    assert DeadLetter.objects.count() == 0


def test_a_retry_wait_is_cut_off_by_the_deadline(kit):
    """C37."""
    run_id = kit.submit("later", {"a": "always_fail"}, deadline="10s")
    kit.worker.work()
    kit.worker.elapse(11)
    assert (kit.run(run_id).state, kit.run(run_id).cause) == ("failed", "deadline")
    kit.worker.elapse(1000)
    assert kit.ledger.calls("a") == 1


def test_a_deadline_that_only_alerts_lets_the_run_go_on(kit):
    run_id = kit.submit("alert", deadline="10s")
    kit.worker.conn.execute("UPDATE workflow_runs SET deadline_at = now() - interval '1 second'")
    kit.worker.elapse(0)
    run = kit.run(run_id)
    assert run.state == "done"
    assert run.deadline_missed_at
    assert AuditRecord.objects.filter(run=run, action="deadline").count() == 1


def test_the_first_cause_stays(kit):
    run = kit.go("saga", {"d": "always_fail"}, deadline="60s")
    kit.worker.elapse(100)
    assert kit.run(run.pk).cause == "error"


def test_an_undo_that_works_the_second_time_leaves_no_open_letter(kit):
    run = kit.go("saga", {"d": "always_fail", "undo:b": "fail_until:x"})
    assert DeadLetter.objects.filter(run=run, state="open").count() == 2
    kit.ledger.open("x")
    run = kit.retry(run)
    assert (run.state, run.compensation) == ("failed", "done")
    assert [letter.step for letter in DeadLetter.objects.filter(run=run, state="open")] == ["d"]
