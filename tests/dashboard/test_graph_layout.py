"""The step graph: every step has a place, nothing overlaps, edges go forward, and it is quick."""

import time

from hypothesis import given
from hypothesis import strategies as st

from dashboard.graph.layout import Size, layout


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    count = draw(st.integers(1, 25))
    names = [f"s{i}" for i in range(count)]
    lists = st.lists
    return {
        n: draw(lists(st.sampled_from(names[:i]), unique=True, max_size=4)) if i else [] for i, n in enumerate(names)
    }


@given(graphs(), st.data())
def test_boxes_do_not_overlap_and_edges_go_forward(graph: dict[str, list[str]], data: st.DataObject) -> None:
    sizes = {n: Size(138, data.draw(st.sampled_from([48.0, 124.0, 69.0]))) for n in graph}
    found = layout(graph, sizes)
    assert set(found.boxes) == set(graph)
    boxes = list(found.boxes.items())
    for i, (_, a) in enumerate(boxes):
        assert 0 <= a.main <= found.main - a.size.main + 0.1
        assert -0.2 <= a.cross <= found.cross - a.size.cross + 0.2
        for _, b in boxes[i + 1 :]:
            apart = a.main + a.size.main <= b.main or b.main + b.size.main <= a.main
            assert apart or a.cross + a.size.cross <= b.cross + 0.2 or b.cross + b.size.cross <= a.cross + 0.2
    assert {(e.start, e.end) for e in found.edges} == {(p, n) for n, before in graph.items() for p in before}
    for edge in found.edges:
        assert found.boxes[edge.start].main < found.boxes[edge.end].main


@given(graphs())
def test_the_same_graph_has_the_same_picture(graph: dict[str, list[str]]) -> None:
    sizes = {n: Size(138, 48) for n in graph}
    assert layout(graph, sizes) == layout(graph, sizes)


def test_a_chain_is_a_straight_line() -> None:
    graph = {"a": [], "b": ["a"], "c": ["b"]}
    found = layout(graph, {n: Size(100, h) for n, h in (("a", 48), ("b", 120), ("c", 48))})
    assert len({box.middle for box in found.boxes.values()}) == 1


def test_a_long_edge_passes_beside_the_boxes_between() -> None:
    graph = {"a": [], "b": ["a"], "c": ["b", "a"]}
    found = layout(graph, {n: Size(100, 48) for n in graph})
    edge = next(e for e in found.edges if (e.start, e.end) == ("a", "c"))
    assert len(edge.bends) == 1
    cross, between = edge.bends[0][2], found.boxes["b"]
    assert not between.cross < cross < between.cross + between.size.cross


def test_crossing_branches_are_untangled() -> None:
    graph = {"r": [], "a": ["r"], "b": ["r"], "x": ["b"], "y": ["a"]}
    boxes = layout(graph, {n: Size(100, 48) for n in graph}).boxes
    assert (boxes["a"].cross < boxes["b"].cross) == (boxes["y"].cross < boxes["x"].cross)


def test_no_steps_no_picture() -> None:
    assert layout({}, {}).boxes == {}


def test_150_steps_take_no_time() -> None:
    graph = {f"s{i}": [f"s{j}" for j in {max(0, i - 1), i // 2, i // 3} if j < i] for i in range(150)}
    start = time.process_time()
    layout(graph, {n: Size(138, 48) for n in graph})
    assert time.process_time() - start < 10  # tangled, it would take minutes
