"""Steps that refer to each other: cycles (C78) and outputs that are used too early."""

from __future__ import annotations

import pytest

from tests.definitions.helpers import refused, spec


@pytest.mark.parametrize(
    ("steps", "line", "cycle"),
    [
        ("- {id: a, after: a}\n", 4, "a -> a"),
        ("- {id: a, after: b}\n- {id: b, after: a}\n", 4, "a -> b -> a"),
        ("- {id: a, after: b}\n- {id: b}\n", 4, "a -> b -> a"),
        ("- {id: a, after: c}\n- {id: b}\n- {id: c}\n", 4, "a -> b -> c -> a"),
        ("- {id: ok}\n- {id: fine}\n- {id: a, after: [b]}\n- {id: b, after: [a]}\n", 6, "a -> b -> a"),
        ("- {id: start}\n- {id: a, after: [start, b]}\n- {id: b, after: a}\n- {id: c}\n", 5, "a -> b -> a"),
        ("- {id: a, after: [], fan_out: {from: a.list}}\n", 4, "a -> a"),
        ("- {id: a, after: [], fan_out: {from: b.list}}\n- {id: b}\n", 4, "a -> b -> a"),
        ("- {id: a, after: [], fan_out: {from: c}}\n- {id: b}\n- {id: c}\n", 4, "a -> b -> c -> a"),
        ("- {id: a, when: b.ok}\n- {id: b}\n", 4, "a -> b -> a"),
        ("- {id: a, lock: 'x{b.key}'}\n- {id: b}\n", 4, "a -> b -> a"),
        ("- {id: a, workflow: w, input: {x: ['{b}']}}\n- {id: b}\n", 4, "a -> b -> a"),
    ],
)
def test_a_cycle_is_refused_and_spelled_out(steps, line, cycle):
    problems = refused("steps:\n" + steps)
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"shop.yaml:{line}: step 'a': ")
    assert f"cycle: {cycle}" in problems[0]


def test_a_cycle_of_a_thousand_is_refused_in_a_short_message():
    steps = "".join(f"- {{id: s{i}, after: s{(i + 1) % 1000}}}\n" for i in range(1000))
    (problem,) = refused("steps:\n" + steps)
    assert "s0 -> s999 -> " in problem
    assert len(problem) < 400


def test_every_unknown_step_is_told_and_no_cycle_is_guessed():
    problems = refused("steps:\n- {id: a, after: [x, b]}\n- {id: b, after: y}\n")
    assert len(problems) == 2
    assert "`after` names 'x', which is no step here" in problems[0]
    assert "`after` names 'y', which is no step here" in problems[1]


@pytest.mark.parametrize("key", ["when: b.ok", "fan_out: {from: b.list}", "lock: 'x:{b.key}'"])
def test_the_output_of_a_parallel_step_cannot_be_used(key):
    (problem,) = refused(f"steps:\n- {{id: a}}\n- {{id: b, after: a}}\n- {{id: c, after: a, {key}}}\n")
    assert "step 'c'" in problem
    assert "'b' need not have run before; add `b` to `after`" in problem


def test_the_output_of_any_earlier_step_can_be_used():
    found = spec("steps:\n- {id: a}\n- {id: b}\n- {id: c, when: a.ok, fan_out: {from: b.list}, lock: '{a}{item.x}'}\n")
    assert found.step("c").when == "a.ok"


def test_after_nothing_starts_at_once():
    assert spec("steps:\n- {id: a}\n- {id: b, after: []}\n").graph == {"a": [], "b": []}
