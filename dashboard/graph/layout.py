"""Where the boxes of a step graph go. Pure: a graph and sizes in, positions out.

Longest-path layers; long edges pass through dummy nodes; barycentre sweeps reduce crossings; then boxes move towards
the middle of their neighbours as far as those beside them allow. "Main" is the direction of the layers (to the right,
or down on a phone), "cross" the direction within one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.core.graph import Graph, levels

SWEEPS = 6
DUMMY = 14.0


@dataclass(frozen=True)
class Size:
    """Of a box, in SVG units: along the layers and across them."""

    main: float
    cross: float


@dataclass(frozen=True)
class Box:
    """A placed box: its top left corner and size, main and cross."""

    main: float
    cross: float
    size: Size

    @property
    def middle(self) -> float:
        """Centre across."""
        return self.cross + self.size.cross / 2


@dataclass(frozen=True)
class Edge:
    """A line from one step to another through ``bends``: (main start, main end, cross) of each layer passed."""

    start: str
    end: str
    bends: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Layout:
    """Boxes by step, edges, and the size of the whole, main and cross."""

    boxes: dict[str, Box]
    edges: list[Edge]
    main: float
    cross: float


def layout(graph: Graph, sizes: Mapping[str, Size], *, gap_main: float = 28, gap_cross: float = 16) -> Layout:
    """Places every step of an acyclic graph. The same graph always gets the same picture.

    Raises:
        ValueError: for a cycle.
    """
    rows = levels(graph)
    if not rows:
        return Layout({}, [], 0, 0)
    layers, links, chains = _with_dummies(graph, rows)
    _untangle(layers, links)
    cross_size = {name: sizes[name].cross if name in sizes else DUMMY for layer in layers for name in layer}
    middles = _relax(layers, links, cross_size, gap_cross)
    starts, depth = [], 0.0
    for layer in layers:
        starts.append(depth)
        depth += max(sizes[name].main if name in sizes else 0.0 for name in layer) + gap_main
    level = {name: i for i, layer in enumerate(layers) for name in layer}
    boxes = {n: Box(starts[level[n]], middles[n] - sizes[n].cross / 2, sizes[n]) for n in graph}
    ends = [starts[i + 1] - gap_main if i + 1 < len(starts) else depth - gap_main for i in range(len(layers))]
    edges = [
        Edge(a, b, tuple((starts[level[d]], ends[level[d]], middles[d]) for d in chain))
        for (a, b), chain in chains.items()
    ]
    total = max(middles[name] + cross_size[name] / 2 for name in middles)
    return Layout(boxes, edges, depth - gap_main, total)


def _with_dummies(
    graph: Graph, rows: list[list[str]]
) -> tuple[list[list[str]], dict[str, list[str]], dict[tuple[str, str], list[str]]]:
    """Layers with dummy nodes, predecessors of every node in the layer before, and the dummies of every edge."""
    level = {step: i for i, row in enumerate(rows) for step in row}
    layers = [list(row) for row in rows]
    links: dict[str, list[str]] = defaultdict(list)
    chains: dict[tuple[str, str], list[str]] = {}
    for step, before in graph.items():
        for parent in dict.fromkeys(before):
            chain, previous = [], parent
            for i in range(level[parent] + 1, level[step]):
                # Step ids hold no spaces, so this is no step's name.
                dummy = f"{parent} {step} {i}"
                layers[i].append(dummy)
                links[dummy].append(previous)
                chain.append(dummy)
                previous = dummy
            links[step].append(previous)
            chains[parent, step] = chain
    return layers, links, chains


def _untangle(layers: list[list[str]], links: Mapping[str, list[str]]) -> None:
    """Orders each layer by the mean place of its neighbours, down and up in turns; the fewest crossings win."""
    successors: dict[str, list[str]] = defaultdict(list)
    for node, before in links.items():
        for parent in before:
            successors[parent].append(node)
    best, best_order = _crossings(layers, links), [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for i in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            _sort_layer(layers[i], layers[i - 1] if down else layers[i + 1], links if down else successors)
        found = _crossings(layers, links)
        if found < best:
            best, best_order = found, [list(layer) for layer in layers]
    for layer, order in zip(layers, best_order, strict=True):
        layer[:] = order


def _sort_layer(layer: list[str], fixed: list[str], neighbours: Mapping[str, list[str]]) -> None:
    place = {name: i for i, name in enumerate(fixed)}
    own = {name: i for i, name in enumerate(layer)}

    def weight(name: str) -> tuple[float, int]:
        near = [place[n] for n in neighbours.get(name, ()) if n in place]
        return (sum(near) / len(near) if near else float(own[name]), own[name])

    layer.sort(key=weight)


def _crossings(layers: Sequence[Sequence[str]], links: Mapping[str, list[str]]) -> int:
    total = 0
    for upper, lower in pairwise(layers):
        place = {name: i for i, name in enumerate(upper)}
        ends = [sorted(place[p] for p in links.get(name, ()) if p in place) for name in lower]
        flat = [p for near in ends for p in near]
        if len(flat) > 400:  # too many to be worth counting pair by pair; the sweeps alone decide
            continue
        total += sum(a > b for i, a in enumerate(flat) for b in flat[i + 1 :])
    return total


def _relax(
    layers: list[list[str]], links: Mapping[str, list[str]], size: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Cross positions of all centres: no two of a layer overlap, and the smallest edge of all is at 0."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for node, before in links.items():
        for parent in before:
            neighbours[node].append(parent)
            neighbours[parent].append(node)
    middles: dict[str, float] = {}
    for layer in layers:
        height = sum(size[n] for n in layer) + gap * (len(layer) - 1)
        at = -height / 2
        for name in layer:
            middles[name] = at + size[name] / 2
            at += size[name] + gap
    for turn in range(SWEEPS * 2):
        for layer in layers if turn % 2 == 0 else layers[::-1]:
            wish = [_mean([middles[n] for n in neighbours[name]], middles[name]) for name in layer]
            middles.update(zip(layer, _spread(wish, [size[n] for n in layer], gap), strict=True))
    low = min(middles[name] - size[name] / 2 for name in middles)
    return {name: round(middle - low, 1) for name, middle in middles.items()}


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _spread(wish: list[float], sizes: list[float], gap: float) -> list[float]:
    """Positions near the wishes, in order, ``gap`` apart: the mean of packing from either side."""
    forward: list[float] = []
    for i, middle in enumerate(wish):
        least = forward[-1] + (sizes[i - 1] + sizes[i]) / 2 + gap if forward else middle
        forward.append(max(middle, least))
    backward: list[float] = []
    for i in range(len(wish) - 1, -1, -1):
        most = backward[-1] - (sizes[i + 1] + sizes[i]) / 2 - gap if backward else wish[i]
        backward.append(min(wish[i], most))
    backward.reverse()
    return [(a + b) / 2 for a, b in zip(forward, backward, strict=True)]
