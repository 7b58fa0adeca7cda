"""Undo: its order, what stops it, what failed for good, and what a retry makes of it."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound
from orchestrator.engine.operate import (
    Actor,
    cancel_run,
    discard_dead_letter,
    preview_cancel,
    preview_retry,
    replay_dead_letter,
    retry_run,
)
from orchestrator.models import AuditRecord, DeadLetter, Run, Step
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


# Retry.


def test_retry_resumes_at_what_failed_and_keeps_the_rest(kit):
    """C82."""
    run = kit.go("strict", {"f/2": "fail_until:mended", "j": "joined", "f/1": {"emit": 1}})
    assert run.state == "failed"
    kit.ledger.open("mended")
    preview = preview_retry(run.pk)
    items = [(i.step, i.shard, i.why, i.attempt) for i in preview.steps]
    assert items == [("f", "2", "failed", 2), ("j", "", "blocked", 1)]
    assert preview.kept == ["f"]
    run = kit.retry(run)
    assert (run.state, run.node_states, run.cause, run.error) == ("done", "dd", None, None)
    assert [kit.ledger.calls(f"f/{i}") for i in (1, 2, 3)] == [1, 2, 1]
    assert [e.attempt for e in kit.ledger.of("f/2", ["start"])] == [1, 2]
    assert len({e.key for e in kit.ledger.of("f/2", ["start"])}) == 1, "not undone: the same idempotency key"
    assert kit.ledger.calls("j") == 1
    letter = DeadLetter.objects.get()
    assert (letter.state, letter.count) == ("replayed", 1)
    assert AuditRecord.objects.get(action="retry").actor == "olga"


def test_a_retry_has_a_fresh_budget_and_a_fresh_deadline(kit):
    run = kit.go("tries", {"a": "fail:5"}, deadline="60s")
    assert kit.row(run, "a").attempt == 3
    kit.worker.conn.execute("UPDATE workflow_runs SET deadline_at = now() - interval '1 hour'")
    run = kit.retry(run)
    assert (run.state, kit.row(run, "a").attempt) == ("done", 6)
    assert 0 < (run.deadline_at - run.finished_at).total_seconds() < 61


def test_a_retry_that_fails_again_reopens_the_dead_letter(kit):
    run = kit.go("tries", {"a": "always_fail"})
    run = kit.retry(run)
    letter = DeadLetter.objects.get()
    assert (run.state, run.retries, letter.state, letter.count, letter.attempts) == ("failed", 1, "open", 2, 6)


def test_retry_after_undo_runs_what_was_undone_again_under_a_new_key(kit):
    run = kit.go("saga", {"a": "once", "b": "once", "c": "once", "d": "fail_until:mended"})
    assert run.compensation == "done"
    kit.ledger.open("mended")
    run = kit.retry(run)
    assert (run.state, run.node_states) == ("done", "dddd"), kit.live.describe(run.pk)
    assert kit.ledger.order()[-4:] == ["a", "b", "c", "d"]
    for step in "abc":
        entries = kit.ledger.of(step, ["start"])
        assert [e.attempt for e in entries] == [1, 2]
        assert entries[0].key != entries[1].key


def test_retry_after_undo_of_shards(kit):
    run = kit.go("saga-fan", {"f/2": "fail_until:mended"})
    kit.ledger.open("mended")
    run = kit.retry(run)
    assert (run.state, run.node_states) == ("done", "ddd"), kit.live.describe(run.pk)
    assert [kit.ledger.calls(s) for s in ("a", "f/1", "f/2", "f/3", "c")] == [2, 2, 2, 2, 1]


def test_a_run_that_is_undone_twice(kit):
    run = kit.go("saga-fan", {"f/2": "always_fail"})
    run = kit.retry(run)
    assert (run.state, run.compensation) == ("failed", "done")
    assert kit.ledger.calls("undo:f") == 6
    assert kit.ledger.calls("undo:a") == 2
    assert Step.objects.filter(kind="compensation").count() == 4
    keys = [e.key for e in kit.ledger.of("undo:a", ["undo"])]
    assert len(set(keys)) == 2


def test_from_step_runs_it_and_all_behind_it(kit):
    run = kit.go("branches", {"j": "fail_until:mended"})
    kit.ledger.open("mended")
    run = kit.retry(run, from_step="x2")
    assert run.state == "done"
    assert {s: kit.ledger.calls(s) for s in ("x1", "x2", "x3", "y", "j", "e")} == {
        "x1": 1,
        "x2": 2,
        "x3": 2,
        "y": 1,
        "j": 2,
        "e": 1,
    }
    order = kit.ledger.order()[-4:]
    assert order == ["x2", "x3", "j", "e"]


def test_from_the_beginning_runs_everything(kit):
    run = kit.go("static", {"j": "fail_until:mended"})
    kit.ledger.open("mended")
    run = kit.retry(run, from_step="*")
    assert (run.state, kit.ledger.calls("f"), kit.ledger.calls("j")) == ("done", 6, 2)


def test_from_an_unknown_step_is_refused(kit):
    run = kit.go("solo", {"a": "always_fail"})
    with pytest.raises(Invalid, match="no step 'z'"):
        kit.retry(run, from_step="z")
    assert kit.run(run.pk).state == "failed"


@pytest.mark.parametrize("state", ["running", "compensating", "done"])
def test_only_what_failed_or_was_cancelled_can_be_retried(kit, state):
    """C84."""
    run_id = kit.submit("timer")
    if state != "running":
        kit.worker.work()
    if state == "compensating":
        kit.cancel(run_id)
    if state == "done":
        kit.worker.elapse(4000)
    assert kit.run(run_id).state == state
    with pytest.raises(Conflict, match=state):
        retry_run(run_id, OPERATOR, "x")
    kit.worker.work()


def test_retry_of_a_cancelled_run(kit):
    run_id = kit.submit("saga")
    kit.cancel(run_id)
    run = kit.retry(run_id)
    assert (run.state, run.node_states) == ("done", "dddd")
    assert [kit.ledger.calls(s) for s in "abcd"] == [1, 1, 1, 1]


def test_retry_of_a_run_cancelled_at_a_timer(kit):
    run = kit.go("timer")
    kit.cancel(run)
    kit.worker.work()
    kit.retry(run)
    row = kit.row(run, "w")
    assert (row.state, row.waiting_for) == ("waiting", "timer"), kit.live.describe(run.pk)
    kit.worker.elapse(3601)
    assert kit.run(run.pk).state == "done"
    assert kit.ledger.calls("a") == 2


def test_retry_of_a_refused_fan_out(kit):
    run = kit.go("dynamic", {"l": "ok"})
    assert run.cause == "invalid_fan_out"
    run = kit.retry(run)
    assert (run.state, run.cause) == ("failed", "invalid_fan_out")
    kit.worker.conn.execute(
        "UPDATE workflow_runs SET input = '{\"do\": {\"l\": {\"emit\": [1, 2]}}}' WHERE id = %s", [run.pk]
    )
    run = kit.retry(run, from_step="*")
    assert (run.state, kit.ledger.calls("f"), kit.ledger.calls("j")) == ("done", 2, 1)


def test_retry_with_a_condition_and_a_window(kit):
    run = kit.go("when", {"a": {"emit": {"yes": True}}, "b": {"emit": {"yes": False}}, "d": "fail_until:mended"})
    kit.ledger.open("mended")
    run = kit.retry(run, from_step="b")
    assert (run.state, run.node_states) == ("done", "ddsd")
    wide = kit.go("window", {"l": "numbers", "f": "fail_until:again"}, input={"n": 7})
    assert wide.state == "failed"
    kit.ledger.open("again")
    wide = kit.retry(wide)
    assert wide.state == "done", kit.live.describe(wide.pk)
    assert kit.ledger.effects("f", wide.pk) == 7


def test_retry_with_a_step_that_may_fail(kit):
    run = kit.go("continue", {"a": "always_fail", "f": "always_fail", "j": "fail_until:mended"})
    kit.ledger.open("mended")
    run = kit.retry(run)
    assert (run.state, run.node_states) == ("done", "ffd")
    assert kit.ledger.calls("a") == 2


def test_replay_of_one_dead_letter_runs_that_row_and_what_it_blocked(kit):
    run = kit.go("settled", {"f/1": "fail_until:x", "f/2": "fail_until:x", "j": "always_fail"})
    kit.ledger.open("x")
    letter = DeadLetter.objects.get(step="f", shard="1")
    replay_dead_letter(letter.pk, OPERATOR, "mended")
    kit.worker.work()
    assert kit.ledger.calls("f/1") == 2
    assert kit.ledger.calls("f/2") == 1
    assert Run.objects.get().state == "failed", "the step behind it still fails"
    with pytest.raises(Conflict, match="replayed already"):
        replay_dead_letter(letter.pk, OPERATOR, "again")
    assert run.pk


def test_a_discarded_dead_letter_leaves_the_run_alone(kit):
    run = kit.go("solo", {"a": "always_fail"})
    letter = DeadLetter.objects.get()
    discard_dead_letter(letter.pk, OPERATOR, "known")
    letter.refresh_from_db()
    assert (letter.state, letter.note) == ("discarded", "known")
    assert kit.run(run.pk).state == "failed"
    with pytest.raises(Conflict):
        discard_dead_letter(letter.pk, OPERATOR, "again")
    with pytest.raises(Conflict):
        replay_dead_letter(letter.pk, OPERATOR, "again")
    kit.retry(run)
    letter.refresh_from_db()
    assert (letter.state, letter.count) == ("open", 2)
