"""A retry in which steps run again that others take their items, their condition or their time from."""

from __future__ import annotations

import pytest

from orchestrator.engine.operate import preview_retry, retry_run
from orchestrator.models import FanOut
from tests.engine.conftest import OPERATOR


def fan(kit, *lists, **do):
    """kit-dynamic whose list is another one at each attempt, stopped by its last step."""
    run = kit.go("dynamic", {"l": "by_attempt", "j": "fail_until:mended; joined", **do}, input={"by": list(lists)})
    assert run.state == "failed"
    kit.ledger.open("mended")
    return run


def counts(run):
    c = FanOut.objects.get(run=run)
    return c.total, c.open, c.done, c.skipped


def test_items_are_read_again_where_their_source_ran_again(kit):
    run = fan(kit, [1, 2, 3], [4, 3, 2], f="echo")
    run = kit.retry(run, from_step="*")
    assert (run.state, run.output) == ("done", {"4": 4, "3": 3, "2": 2}), kit.live.describe(run.pk)
    assert [kit.ledger.calls(f"f/{i}") for i in (1, 2, 3, 4)] == [1, 2, 2, 1]
    assert kit.states(run)["f/1"] == "skipped" and counts(run) == (4, 0, 3, 1)


def test_items_are_as_they_were_where_their_source_was_kept(kit):
    run = fan(kit, [1, 2, 3], [7], f="echo")
    run = kit.retry(run, from_step="f")
    assert (run.output, kit.ledger.calls("l"), kit.ledger.calls("f")) == ({"1": 1, "2": 2, "3": 3}, 1, 6)
    assert counts(run) == (3, 0, 3, 0)


def test_another_item_under_the_same_name_gets_another_key(kit):
    run = fan(kit, [{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 9}, {"n": 3}], f="echo")
    run = kit.retry(run, from_step="*")
    assert run.output == {"0": {"n": 1}, "1": {"n": 9}, "2": {"n": 3}}
    first, second = ([e.key for e in kit.ledger.of(f"f/{i}", ["start"])] for i in (0, 1))
    assert len(set(first)) == 1 and len(set(second)) == 2


@pytest.mark.parametrize("now", [[], "no list"])
def test_a_list_that_is_empty_or_none_the_second_time(kit, now):
    run = fan(kit, [1, 2], now, [5], f="echo")
    run = kit.retry(run, from_step="*")
    if now == []:
        assert (run.state, run.node_states, run.output, counts(run)) == ("done", "dsd", {}, (2, 0, 0, 2))
        return
    assert (run.state, run.cause) == ("failed", "invalid_fan_out")
    run = kit.retry(run, from_step="*")
    assert (run.state, run.output) == ("done", {"5": 5}), kit.live.describe(run.pk)


def test_a_list_that_was_empty_the_first_time(kit):
    run = fan(kit, [], [1, 2], f="echo")
    run = kit.retry(run, from_step="*")
    assert (run.state, run.output, counts(run)) == ("done", {"1": 1, "2": 2}, (2, 0, 2, 0))


def test_many_items_some_of_them_new(kit):
    run = fan(kit, list(range(100)), list(range(50, 200)))
    run = kit.retry(run, from_step="*")
    assert run.state == "done" and counts(run) == (200, 0, 150, 50)
    assert kit.ledger.calls("f") == 250


@pytest.mark.parametrize(("first", "second", "letters"), [(True, False, "dssd"), (False, True, "dddd")])
def test_a_condition_is_asked_again(kit, first, second, letters):
    does = {"a": "by_attempt", "b": {"emit": {"yes": True}}, "d": "fail_until:mended"}
    run = kit.go("when", does, input={"by": [{"yes": first}, {"yes": second}]})
    assert run.state == "failed"
    kit.ledger.open("mended")
    run = kit.retry(run, from_step="*")
    assert (run.state, run.node_states) == ("done", letters), kit.live.describe(run.pk)
    assert kit.ledger.calls("b") == 1


def test_what_a_step_had_ruled_out_is_decided_again_when_that_step_was_undone(kit):
    by = [{"yes": False, "list": []}, {"yes": True, "list": [1, 2]}]
    run = kit.go("decides", {"a": "by_attempt", "c": "fail_until:mended"}, input={"by": by})
    assert (run.state, run.compensation, run.node_states) == ("failed", "done", "dssf")
    kit.ledger.open("mended")
    preview = [(i.step, i.why) for i in preview_retry(run.pk).steps]
    assert preview == [("a", "undone"), ("c", "failed"), ("b", "decided again"), ("f", "decided again")]
    run = kit.retry(run)
    assert (run.state, run.node_states) == ("done", "dddd"), kit.live.describe(run.pk)
    assert [kit.ledger.calls(s) for s in "abfc"] == [2, 1, 2, 2]


def test_what_has_run_is_kept_though_the_condition_would_now_rule_it_out(kit):
    by = [{"yes": True, "list": [1]}, {"yes": False, "list": []}]
    run = kit.go("decides", {"a": "by_attempt", "c": "fail_until:mended"}, input={"by": by})
    kit.ledger.open("mended")
    run = kit.retry(run)
    assert (run.state, run.node_states) == ("done", "dddd")
    assert [kit.ledger.calls(s) for s in "abfc"] == [2, 1, 1, 2]


def test_a_join_waits_anew(kit):
    run = kit.go("join-timeout", {"j": "fail_until:mended; joined", "f": "echo"})
    kit.worker.conn.execute("UPDATE workflow_fan_outs SET join_due_at = now() - interval '1 hour'")
    kit.ledger.open("mended")
    run = kit.retry(run, from_step="f")
    assert (run.state, len(run.output), kit.ledger.calls("f")) == ("done", 4, 8), kit.live.describe(run.pk)


def test_a_failure_beside_it_in_the_same_moment_stops_a_fan_out_that_was_reopened(kit):
    run = fan(kit, [1, 2, 3], [3, 4], f="always_fail")
    run = kit.retry(run, from_step="*")
    assert (run.state, run.pending) == ("failed", 0)
    run = kit.run(run.pk)
    assert run.node_states in ("dfb", "dfc")


def test_what_started_and_was_not_undone_is_undone_though_it_has_not_started_again(kit):
    run = kit.go("held-saga", {"b": "always_fail"})
    assert run.state == "compensating"
    retry_run(run.pk, OPERATOR, "mended")
    kit.cancel(run)
    kit.worker.work()
    run = kit.run(run.pk)
    assert (run.state, run.compensation) == ("cancelled", "done")
    assert kit.ledger.order(run.pk, "undo") == ["undo:b", "undo:a"]
