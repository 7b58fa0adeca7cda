"""Every shape of a workflow, run to its end: order, joins, skips, windows, conditions, timers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.models import FanOut


def test_a_chain_runs_in_order_each_step_once(kit):
    run = kit.go("chain", {"e": {"emit": {"x": 1}}})
    assert (run.state, run.node_states, run.pending) == ("done", "ddddd", 0)
    assert kit.ledger.order() == ["a", "b", "c", "d", "e"]
    assert run.output == {"x": 1}


def test_a_static_fan_out_runs_each_shard_once_and_its_join_once(kit):
    run = kit.go("static", {"f": "echo", "j": "joined"})
    assert run.state == "done"
    assert sorted(kit.ledger.order(run.pk, "start")[:3]) == ["f/1", "f/2", "f/3"]
    assert kit.ledger.calls("j") == 1
    assert run.output == {"1": 1, "2": 2, "3": 3}


LISTS = [[], [7], [7, 8], list(range(65)), [{"a": 1}, {"a": 1}], ["x", "x"], [None, True, 1.5]]


@pytest.mark.parametrize("items", LISTS)
def test_a_dynamic_fan_out_of_none_one_many_and_repeated_items(kit, items):
    """C03, C05: the shape at 0 and 1 is the shape at n."""
    run = kit.go("dynamic", {"l": {"emit": items}, "f": "echo", "j": "joined"})
    assert run.state == "done", kit.live.describe(run.pk)
    assert kit.ledger.calls("f") == len(items)
    assert kit.ledger.calls("j") == 1
    assert sorted(map(repr, (run.output or {}).values())) == sorted(map(repr, items))
    assert run.node_states == ("dsd" if not items else "ddd")
    if items:
        counts = FanOut.objects.get(run=run)
        assert (counts.total, counts.open, counts.done) == (len(items), 0, len(items))


def test_a_static_fan_out_of_one_and_of_none(kit):
    one = kit.go("one", {"f": "echo", "j": "joined"})
    assert (one.state, one.output) == ("done", {"only": "only"})
    none = kit.go("none", {"j": "joined"})
    assert (none.state, none.node_states, none.output) == ("done", "sd", {})
    assert kit.ledger.calls("f", none.pk) == 0
    assert kit.ledger.calls("j", none.pk) == 1


@pytest.mark.parametrize("output", [None, 5, "text", {"a": 1}])
def test_what_is_no_list_is_no_fan_out(kit, output):
    run = kit.go("dynamic", {"l": {"emit": output}})
    assert (run.state, run.cause, run.node_states) == ("failed", "invalid_fan_out", "dfb")
    assert run.error["step"] == "f"
    assert kit.ledger.calls("f") == 0
    assert FanOut.objects.count() == 0


def test_more_items_than_allowed_is_a_clean_failure(kit, monkeypatch):
    monkeypatch.setattr("orchestrator.engine.advance.MAX_ITEMS", 10)
    run = kit.go("dynamic", {"l": "numbers"}, input={"n": 11})
    assert (run.state, run.cause) == ("failed", "invalid_fan_out")
    assert "11 items" in run.error["message"]
    assert run.steps.filter(step="f").count() == 1


def test_a_window_lets_so_many_shards_out_and_all_of_them_run(kit):
    run_id = kit.submit("window", {"l": "numbers"}, input={"n": 7})
    kit.worker.step()
    assert kit.run(run_id).steps.filter(step="f", state__in=["queued", "running"]).count() <= 2
    kit.worker.work()
    run = kit.run(run_id)
    assert run.state == "done", kit.live.describe(run_id)
    assert kit.ledger.effects("f") == 7


def test_two_joins_on_the_same_two_fan_outs(kit):
    run = kit.go("diamond", {"l": "numbers"}, input={"n": 5})
    assert run.state == "done"
    assert [kit.ledger.calls(s) for s in ("f", "g", "j1", "j2")] == [5, 5, 1, 1]


def test_branches_meet(kit):
    run = kit.go("branches")
    order = kit.ledger.order()
    assert run.state == "done"
    assert order.index("x1") < order.index("x2") < order.index("x3") < order.index("j") < order.index("e")
    assert sorted(order) == ["e", "j", "x1", "x2", "x3", "y"]


@pytest.mark.parametrize(
    ("yes", "also", "letters"),
    [(True, True, "dddd"), (True, False, "ddsd"), (False, True, "dssd"), (None, None, "dssd"), ([], [], "dssd")],
)
def test_a_condition_skips_and_what_is_skipped_satisfies(kit, yes, also, letters):
    run = kit.go("when", {"a": {"emit": {"yes": yes}}, "b": {"emit": {"yes": also}}})
    assert (run.state, run.node_states) == ("done", letters)
    assert kit.ledger.calls("d") == 1


def test_a_handler_that_skips_satisfies_its_successors(kit):
    run = kit.go("tries", {"a": "skip:not today"})
    assert (run.state, run.node_states) == ("done", "sd")
    assert kit.row(run, "a").error["message"] == "not today"


def test_all_shards_skipped_is_a_skipped_step_and_the_join_runs(kit):
    run = kit.go("static", {"f": "skip", "j": "joined"})
    assert (run.state, run.node_states, run.output) == ("done", "sd", {})


def test_a_timer_waits_without_a_worker(kit):
    run = kit.go("timer")
    assert (run.state, run.node_states) == ("running", "dap")
    row = kit.row(run, "w")
    assert (row.state, row.waiting_for) == ("waiting", "timer")
    kit.worker.elapse(3599)
    assert kit.run(run.pk).node_states == "dap"
    kit.worker.elapse(2)
    assert kit.run(run.pk).state == "done"


def test_a_delayed_run_starts_when_due_and_its_deadline_clock_then(kit):
    run_id = kit.submit("tries", delay="1h", deadline="10s")
    kit.worker.work()
    run = kit.run(run_id)
    assert (run.state, run.started_at, run.deadline_at, run.pending) == ("running", None, None, 0)
    kit.worker.elapse(3601)
    run = kit.run(run_id)
    assert run.state == "done"
    assert 9 < (run.deadline_at - run.started_at).total_seconds() < 11


def test_lengths_of_time_may_be_timedeltas(kit):
    run = kit.run(kit.submit("tries", delay=timedelta(hours=1), deadline=timedelta(seconds=90)))
    assert run.deadline_seconds == 90
    assert 3590 < (run.available_at - run.submitted_at).total_seconds() < 3610


def test_steps_go_to_their_queues(kit):
    run_id = kit.submit("queues")
    kit.worker.work()
    assert kit.run(run_id).state == "done"
    assert list(kit.run(run_id).steps.order_by("id").values_list("step", "queue")) == [
        ("a", "left"),
        ("b", "right"),
        ("c", "left"),
    ]


def test_a_join_that_takes_what_settled(kit):
    run = kit.go("settled", {"f/2": "always_fail", "j": "failures"})
    assert (run.state, run.node_states) == ("done", "dd"), kit.live.describe(run.pk)
    assert run.output == {"2": {"type": "RuntimeError", "message": "always fails"}}


def test_a_join_that_takes_what_settled_goes_on_even_when_all_failed(kit):
    run = kit.go("settled", {"f": "always_fail", "j": "joined"})
    assert (run.state, run.output) == ("done", {})


@pytest.mark.parametrize(("failing", "state"), [(0, "done"), (1, "done"), (2, "failed"), (3, "failed")])
def test_a_join_of_at_least_two_of_three(kit, failing, state):
    run = kit.go("at-least", {f"f/{i}": "always_fail" for i in range(1, failing + 1)})
    assert run.state == state
    assert kit.ledger.calls("j") == (state == "done")


def test_a_failed_step_that_may_fail(kit):
    run = kit.go("continue", {"a": "always_fail", "f/1": "always_fail"})
    assert (run.state, run.node_states, run.cause) == ("done", "ffd", None)
    assert run.dead_letters.count() == 2
    assert kit.ledger.calls("f") == 3
    assert kit.ledger.calls("j") == 1
