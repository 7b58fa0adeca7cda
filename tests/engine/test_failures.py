"""What an attempt that does not succeed comes to: tries, permanent failures, stops, what is written of it."""

from __future__ import annotations

import pytest

from orchestrator.models import Attempt, AuditRecord, DeadLetter


def test_a_failed_attempt_is_tried_again_and_the_next_step_waits_for_it(kit):
    """C09, C17."""
    run_id = kit.submit("later", {"a": "fail:2"})
    kit.worker.work()
    for attempt in (1, 2):
        row = kit.row(run_id, "a")
        assert (row.state, row.waiting_for, row.attempt) == ("waiting", "retry", attempt)
        assert kit.run(run_id).node_states == "ap"
        assert kit.run(run_id).pending == 1
        assert kit.ledger.calls("b") == 0
        kit.worker.elapse(59)
        assert kit.ledger.calls("a") == attempt
        kit.worker.elapse(62)
    assert kit.run(run_id).state == "done"
    assert [e.attempt for e in kit.ledger.of("a", ["start"])] == [1, 2, 3]
    assert kit.ledger.order(run_id, "start", "end")[-4:] == ["a", "a", "b", "b"]


def test_the_wait_grows_as_the_definition_says(kit):
    run_id = kit.submit("later", {"a": "always_fail"})
    kit.worker.work()
    waits = []
    for _ in range(3):
        row = kit.row(run_id, "a")
        waits.append((row.ready_at - Attempt.objects.filter(step_row=row).last().finished_at).total_seconds())
        kit.worker.elapse(1000)
    assert [round(w) for w in waits] == [60, 120, 240]


def test_a_retried_shard_does_not_count_as_ended(kit):
    """C09: the join starts after the last attempt of the last shard."""
    run_id = kit.submit("static", {"f/2": "fail:2"})
    kit.worker.work()
    for _ in range(2):
        assert kit.run(run_id).pending == 1
        assert kit.run(run_id).fan_outs.get().open == 1
        assert kit.ledger.calls("j") == 0
        kit.worker.elapse(2)
    assert kit.run(run_id).state == "done"
    assert kit.ledger.calls("f/2") == 3
    assert kit.ledger.calls("j") == 1
    assert kit.ledger.of("j", ["start"])[0].at >= kit.ledger.of("f/2", ["end"])[-1].at


def test_after_the_last_attempt_the_run_fails_and_says_where(kit):
    run = kit.go("tries", {"a": "always_fail:disk full"})
    assert (run.state, run.cause, run.stop, run.node_states) == ("failed", "error", "failure", "fb")
    assert run.error == {"type": "RuntimeError", "message": "disk full", "step": "a", "shard": ""}
    assert kit.ledger.calls("a") == 3
    assert kit.states(run) == {"a": "failed", "b": "skipped"}
    assert kit.row(run, "b").cause == "blocked"
    letter = DeadLetter.objects.get()
    assert (letter.step, letter.cause, letter.attempts, letter.state, letter.count) == ("a", "error", 3, "open", 1)
    assert list(Attempt.objects.order_by("attempt").values_list("attempt", "cause")) == [
        (1, "error"),
        (2, "error"),
        (3, "error"),
    ]
    assert Attempt.objects.get(attempt=3).retry_at is None
    assert AuditRecord.objects.filter(run=run, action="state").count() == 1


def test_a_shard_that_was_tried_is_not_called_unreachable(kit):
    """It waits for another attempt when a sibling fails for good: it was tried, will not be again, can be retried."""
    run = kit.go("static", {"f/1": "always_fail", "f/3": "fatal"})
    tried = kit.row(run, "f", "1")
    assert (run.state, run.cause, run.node_states) == ("failed", "error", "cb")
    assert (tried.state, tried.cause, tried.attempt) == ("cancelled", "blocked", 1)
    fan_out = run.fan_outs.get()
    assert (fan_out.open, fan_out.failed, fan_out.cancelled, fan_out.skipped) == (0, 1, 1, 0)
    assert DeadLetter.objects.count() == 1
    kit.retry(run.pk)
    kit.worker.work()
    assert kit.row(run, "f", "1").attempt == 2


def test_a_permanent_failure_spends_no_retry(kit):
    run = kit.go("tries", {"a": "fatal:no such file"})
    assert (run.state, run.error["message"]) == ("failed", "no such file")
    assert kit.ledger.calls("a") == 1


def test_retry_after_says_when(kit):
    run_id = kit.submit("later", {"a": "retry:5"})
    kit.worker.work()
    kit.worker.elapse(4)
    assert kit.ledger.calls("a") == 1
    kit.worker.elapse(2)
    assert kit.run(run_id).state == "done"
    assert kit.row(run_id, "a").attempt == 2


@pytest.mark.parametrize("failing", ["1", "3"])
def test_a_shard_that_fails_for_good_stops_the_run_once_the_others_ended(kit, failing):
    """C07, with the failing shard first and last."""
    run = kit.go("strict", {f"f/{failing}": "always_fail"})
    assert (run.state, run.cause, run.error["shard"]) == ("failed", "error", failing)
    assert kit.ledger.calls("j") == 0
    assert kit.states(run)["j"] == "skipped"
    assert DeadLetter.objects.count() == 1
    assert "pending" not in kit.states(run).values()


def test_many_failing_members_are_one_failure_of_the_run(kit):
    """C19."""
    run = kit.go("hook", {"f": "always_fail"})
    assert run.state == "cancelled", "terminal_state of the definition"
    assert run.cause == "error"
    assert kit.ledger.calls("undo") == 1
    assert AuditRecord.objects.filter(run=run, action="state").count() == 2


def test_a_failure_in_the_middle_of_a_branch_blocks_everything_behind_it(kit):
    """C15: in the transaction that stops the run."""
    run = kit.go("branches", {"x2": "always_fail"})
    assert run.state == "failed"
    states = kit.states(run)
    assert {s: states[s] for s in ("x2", "x3", "j", "e")} == {
        "x2": "failed",
        "x3": "skipped",
        "j": "skipped",
        "e": "skipped",
    }


@pytest.mark.parametrize("output", ["nul", "nul_key", "surrogate", "nan", "set"])
def test_output_that_cannot_be_stored_is_a_failed_attempt(kit, output):
    """C71."""
    run = kit.go("solo", {"a": output})
    assert (run.state, run.cause) == ("failed", "invalid_output")
    assert kit.row(run, "a").error["type"] == "InvalidOutput"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("nul_error", "a\ufffdb ? c"),
        ("broken_str", "__str__ raised RuntimeError"),
        ("huge_error", "characters left out"),
        ("leave", "SystemExit"),
    ],
)
def test_an_error_can_always_be_stored(kit, error, said):
    """C71."""
    run = kit.go("solo", {"a": error})
    assert (run.state, run.cause) == ("failed", "error")
    stored = kit.row(run, "a").error
    assert said in stored["message"]
    assert len(stored["traceback"]) < 50_000
    assert DeadLetter.objects.get().error["message"] == stored["message"]


def test_hostile_shard_items_run(kit):
    items = ["", "a/b", "ü\u202e", "x" * 5000, "<script>", "'; DROP TABLE workflow_runs; --"]
    run = kit.go("dynamic", {"l": {"emit": items}, "f": "echo", "j": "joined"})
    assert run.state == "done"
    assert sorted(run.output.values()) == sorted(items)


def test_a_large_output_is_passed_by_reference(kit):
    kit.live.configure(ORCHESTRATOR_INLINE_BYTES="1000")
    run = kit.go("static", {"f/1": "big", "f/2": {"emit": 2}, "j": "joined"})
    assert run.state == "done"
    row = kit.row(run, "f", "1")
    assert row.output is None
    assert row.output_ref
    assert kit.row(run, "f", "2").output == 2
    joined = kit.row(run, "j")
    assert joined.output_ref, "what holds it is large too"


def test_a_lost_worker_spends_an_attempt_and_the_step_is_tried_again(kit):
    run_id = kit.submit("tries")
    _claim_and_vanish(kit)
    kit.worker.work()
    row = kit.row(run_id, "a")
    assert (kit.run(run_id).state, row.attempt) == ("done", 2)
    assert Attempt.objects.get().cause == "worker_lost"


def test_a_job_that_costs_its_worker_every_time_ends(kit):
    """C24: crashes are counted on the row."""
    run_id = kit.submit("tries")
    for _ in range(3):
        _claim_and_vanish(kit)
    kit.worker.work()
    run = kit.run(run_id)
    assert (run.state, run.cause, kit.row(run_id, "a").attempt) == ("failed", "worker_lost", 3)
    assert DeadLetter.objects.get().cause == "worker_lost"


def _claim_and_vanish(kit) -> None:
    """A process claims what there is and is never heard of again."""
    from orchestrator.engine import recover
    from orchestrator.engine.transitions import Ticket, claim

    recover.wake_due(kit.worker.conn)
    tickets = kit.worker.tickets()
    assert tickets
    assert claim(kit.worker.conn, [Ticket(t.run_id, t.step, 1) for t in tickets], kit.worker.holder)
    kit.worker.lose()
