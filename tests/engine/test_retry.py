"""Retry: what runs again, what is kept, under which key and budget; dead letters replayed and discarded."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict, Invalid
from orchestrator.engine.operate import (
    discard_dead_letter,
    preview_retry,
    replay_dead_letter,
    retry_run,
)
from orchestrator.models import AuditRecord, DeadLetter, Run, Step
from tests.engine.conftest import OPERATOR


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
        'UPDATE workflow_runs SET input = \'{"do": {"l": {"emit": [1, 2]}}}\' WHERE id = %s', [run.pk]
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
