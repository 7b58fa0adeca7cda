"""The order of steps. A graph is ``{step: [steps it comes after]}`` in the order of the definition.

Nothing here recurses, so a chain of a thousand steps is as safe as a chain of three. Apart from :func:`unknown` every
function expects that each name in a list is also a key.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

Graph = Mapping[str, Sequence[str]]


def unknown(graph: Graph) -> list[tuple[str, str]]:
    """Pairs (step, name it comes after) where no step has that name."""
    return [(step, name) for step, before in graph.items() for name in before if name not in graph]


def successors(graph: Graph) -> dict[str, list[str]]:
    """For each step those that come directly after it, in the order of the definition."""
    after: dict[str, list[str]] = {step: [] for step in graph}
    for step, before in graph.items():
        for name in dict.fromkeys(before):
            after[name].append(step)
    return after


def find_cycle(graph: Graph) -> list[str] | None:
    """One cycle in running order, its first step repeated at the end (``[a, b, a]``: b after a, a after b), or None.

    It begins with the step that the definition names first. The same graph always gives the same cycle.
    """
    after = successors(graph)
    seen: set[str] = set()
    for root in graph:
        if root in seen:
            continue
        path, on_path, walk = [root], {root}, [iter(after[root])]
        seen.add(root)
        while path:
            step = next(walk[-1], None)
            if step is None:
                on_path.discard(path.pop())
                walk.pop()
            elif step in on_path:
                return _from_first(path[path.index(step) :], list(graph))
            elif step not in seen:
                seen.add(step)
                path.append(step)
                on_path.add(step)
                walk.append(iter(after[step]))
    return None


def _from_first(cycle: list[str], order: list[str]) -> list[str]:
    start = min(range(len(cycle)), key=lambda i: order.index(cycle[i]))
    turned = cycle[start:] + cycle[:start]
    return [*turned, turned[0]]


def spell(path: Sequence[str]) -> str:
    """A path or cycle as people read it, ``a -> b -> a``; a long one is cut in the middle."""
    if len(path) > 20:
        path = [*path[:10], f"({len(path) - 19} more)", *path[-9:]]
    return " -> ".join(path)


def find_path(graph: Graph, start: str, end: str) -> list[str] | None:
    """A shortest way from ``start`` to ``end`` in running order, both included, or None."""
    after = successors(graph)
    came: dict[str, str | None] = {start: None}
    queue = [start]
    for step in queue:
        if step == end:
            path: list[str] = []
            at: str | None = end
            while at is not None:
                path.append(at)
                at = came[at]
            return path[::-1]
        for name in after[step]:
            if name not in came:
                came[name] = step
                queue.append(name)
    return None


def topological_order(graph: Graph) -> list[str]:
    """Every step after all that it comes after; otherwise in the order of the definition.

    Raises:
        ValueError: for a cycle, spelled out.
    """
    steps = list(graph)
    index = {step: i for i, step in enumerate(steps)}
    after = successors(graph)
    missing = {step: len(set(before)) for step, before in graph.items()}
    ready = [index[step] for step in steps if not missing[step]]
    order: list[str] = []
    while ready:
        step = steps[heapq.heappop(ready)]
        order.append(step)
        for name in after[step]:
            missing[name] -= 1
            if not missing[name]:
                heapq.heappush(ready, index[name])
    if len(order) < len(steps):
        raise ValueError(f"cycle: {spell(find_cycle(graph) or [])}")
    return order


def levels(graph: Graph) -> list[list[str]]:
    """Steps by the length of the longest way to them: the first list starts at once, the next after one step, …

    Raises:
        ValueError: for a cycle, spelled out.
    """
    depth: dict[str, int] = {}
    for step in topological_order(graph):
        depth[step] = max((depth[name] + 1 for name in graph[step]), default=0)
    rows: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for step in graph:
        rows[depth[step]].append(step)
    return rows


def leaves(graph: Graph) -> list[str]:
    """The last steps: those that no other comes after."""
    inner = {name for before in graph.values() for name in before}
    return [step for step in graph if step not in inner]


def descendants(graph: Graph, steps: Sequence[str]) -> set[str]:
    """These steps and all behind them."""
    after = successors(graph)
    found = set(steps)
    queue = list(steps)
    while queue:
        for name in after[queue.pop()]:
            if name not in found:
                found.add(name)
                queue.append(name)
    return found


class Ancestry:
    """Which steps come before which, however far. Built once in one pass; a bit for each step keeps it small.

    Raises:
        ValueError: for a cycle, spelled out.
    """

    def __init__(self, graph: Graph) -> None:
        self._bit = {step: 1 << i for i, step in enumerate(graph)}
        self._before: dict[str, int] = {}
        for step in topological_order(graph):
            mask = 0
            for name in graph[step]:
                mask |= self._bit[name] | self._before[name]
            self._before[step] = mask

    def is_before(self, earlier: str, later: str) -> bool:
        """Whether ``later`` starts only after ``earlier``, directly or through others. A step is not before itself."""
        return bool(self._before[later] & self._bit[earlier])

    def before(self, step: str) -> list[str]:
        """All steps before this one, in the order of the definition."""
        return [name for name, bit in self._bit.items() if self._before[step] & bit]
