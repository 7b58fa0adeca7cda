"""Order of steps: cycles, levels, ancestry."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core import graph as g

DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@st.composite
def dags(draw):
    """Graphs whose steps come only after earlier ones of a hidden order, written down in another order."""
    count = draw(st.integers(0, 12))
    names = [f"s{i}" for i in range(count)]
    before = {
        name: draw(st.lists(st.sampled_from(names[:i]), unique=True)) if i else [] for i, name in enumerate(names)
    }
    return {name: before[name] for name in draw(st.permutations(names))}


@st.composite
def graphs(draw):
    names = [f"s{i}" for i in range(draw(st.integers(1, 10)))]
    return {name: draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) for name in names}


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({}, None),
        ({"a": []}, None),
        (DIAMOND, None),
        ({"a": ["a"]}, "a -> a"),
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"b": ["a"], "a": ["b"]}, "b -> a -> b"),
        ({"a": ["c"], "b": ["a"], "c": ["b"]}, "a -> b -> c -> a"),
        ({"good": [], "fine": ["good"], "x": ["y"], "y": ["x"]}, "x -> y -> x"),
        ({"start": [], "x": ["start", "y"], "y": ["x"], "end": ["y"]}, "x -> y -> x"),
    ],
)
def test_cycles_are_spelled_out(graph, cycle):
    found = g.find_cycle(graph)
    assert (g.spell(found) if found else None) == cycle
    if cycle:
        with pytest.raises(ValueError, match=cycle):
            g.topological_order(graph)


def test_a_long_cycle_is_cut_in_the_middle_and_does_not_recurse():
    graph = {f"s{i}": [f"s{(i - 1) % 1000}"] for i in range(1000)}
    found = g.find_cycle(graph)
    assert found is not None
    assert len(found) == 1001
    text = g.spell(found)
    assert text.startswith("s0 -> s1 -> ")
    assert text.endswith(" -> s999 -> s0")
    assert "(982 more)" in text


def test_unknown_names_its_step():
    assert g.unknown({"a": ["b", "a"], "c": []}) == [("a", "b")]


def test_levels_of_a_diamond():
    assert g.levels(DIAMOND) == [["a"], ["b", "c"], ["d"]]
    assert g.levels({}) == []
    assert g.leaves(DIAMOND) == ["d"]


def test_descendants_include_the_steps_themselves():
    assert g.descendants(DIAMOND, ["b"]) == {"b", "d"}
    assert g.descendants(DIAMOND, []) == set()


def test_find_path_is_shortest_and_in_running_order():
    assert g.find_path(DIAMOND, "a", "d") == ["a", "b", "d"]
    assert g.find_path(DIAMOND, "d", "a") is None
    assert g.find_path(DIAMOND, "a", "a") == ["a"]


def test_a_step_named_twice_counts_once():
    assert g.topological_order({"a": [], "b": ["a", "a"]}) == ["a", "b"]
    assert g.successors({"a": [], "b": ["a", "a"]}) == {"a": ["b"], "b": []}


@given(dags())
def test_order_respects_every_arrow_and_loses_nobody(graph):
    order = g.topological_order(graph)
    assert sorted(order) == sorted(graph)
    place = {step: i for i, step in enumerate(order)}
    assert all(place[name] < place[step] for step, before in graph.items() for name in before)
    assert g.find_cycle(graph) is None
    depth = {step: i for i, row in enumerate(g.levels(graph)) for step in row}
    assert all(depth[step] == max((depth[n] + 1 for n in before), default=0) for step, before in graph.items())


@given(dags())
def test_ancestry_agrees_with_descendants(graph):
    ancestry = g.Ancestry(graph)
    for step in graph:
        behind = g.descendants(graph, [step]) - {step}
        assert {other for other in graph if ancestry.is_before(step, other)} == behind
        assert not ancestry.is_before(step, step)
        assert all(step in ancestry.before(other) for other in behind)


@given(graphs())
def test_a_reported_cycle_really_is_one(graph):
    cycle = g.find_cycle(graph)
    if cycle is None:
        g.topological_order(graph)
    else:
        assert cycle[0] == cycle[-1]
        assert len(cycle) == len(set(cycle)) + 1
        assert all(one in graph[following] for one, following in pairwise(cycle))
