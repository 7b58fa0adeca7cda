"""The step graph of a run as shapes that a template prints: left to right for a desktop, top to bottom for a phone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dashboard.graph.layout import Box, Edge, Layout, Size, layout
from dashboard.queries.run_steps import RowView, StepView
from dashboard.words import Look
from orchestrator.core.durations import format_duration
from orchestrator.core.graph import levels
from orchestrator.core.states import NODE_SATISFIED, NodeState, StepState, WaitingFor
from orchestrator.engine.explain_words import clock, span

#: Beyond this many steps a picture helps nobody: the page shows the list alone.
MAX_NODES = 150
#: Shards up to this number are named inside their step; above it they are a bar.
NAMED = 6
CHAR, MONO, SMALL = 6.9, 7.0, 5.4
SHARD_HEIGHT = 21


@dataclass(frozen=True)
class Text:
    """One line inside a box; ``right`` is set flush right."""

    y: float
    look: Look | None
    left: str
    right: str

    @property
    def top(self) -> float:
        """Where the shape beside the line begins."""
        return self.y - 11


@dataclass(frozen=True)
class Bar:
    """A part of a bar: where it begins, how wide it is, and its fill."""

    x: float
    width: float
    fill: str


@dataclass
class Shape:
    """One step: a link with a box."""

    id: str
    x: float
    y: float
    width: float
    height: float
    css: str
    look: Look
    title: str
    sub: str
    count: str
    sheet: bool
    label: str
    current: bool
    shards: list[Text] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    @property
    def inner(self) -> float:
        """Where text flush right ends."""
        return round(self.width - 10, 1)

    @property
    def sheet_width(self) -> float:
        """Of the sheet behind, which says that there are several."""
        return round(self.width - 8, 1)

    @property
    def bar_width(self) -> float:
        """Of the bar of all shards."""
        return round(self.width - 24, 1)


@dataclass(frozen=True)
class Line:
    """An edge: its path, its arrow head, and its class (done, todo)."""

    path: str
    arrow: str
    css: str


@dataclass(frozen=True)
class Picture:
    """One orientation: ``lr`` or ``tb``."""

    css: str
    width: float
    height: float
    shapes: list[Shape]
    lines: list[Line]

    @property
    def outer(self) -> tuple[float, float]:
        """Width and height with a margin for strokes and sheets."""
        return round(self.width + 12, 1), round(self.height + 12, 1)


def pictures(views: list[StepView], now: datetime, current: str) -> list[Picture]:
    """Both orientations, or none for a graph too large to be read. ``current`` is the step open in the panel."""
    if not 0 < len(views) <= MAX_NODES:
        return []
    return [_wide(views, now, current), _tall(views, now, current)]


def _wide(views: list[StepView], now: datetime, current: str) -> Picture:
    graph = {view.id: list(view.node.spec.after) for view in views}
    longest = max(len(view.id) for view in views)
    width = min(max(138.0, 46 + longest * CHAR), 196.0)
    sizes = {view.id: Size(width, _height(view)) for view in views}
    found = layout(graph, sizes, gap_main=28 if len(views) < 60 else 40)
    shapes = [_shape(view, found.boxes[view.id], now, current, phone=False) for view in views]
    lines = [_line(edge, found, views, wide=True) for edge in found.edges]
    return Picture("lr", found.main, found.cross, shapes, sorted(lines, key=lambda line: line.css == "done"))


def _tall(views: list[StepView], now: datetime, current: str) -> Picture:
    graph = {view.id: list(view.node.spec.after) for view in views}
    widest = max(len(row) for row in levels(graph))
    width = 168.0 if widest < 3 else 109.0
    sizes = {view.id: Size(46, width) for view in views}
    found = layout(graph, sizes, gap_main=24, gap_cross=8)
    shapes = [_shape(view, found.boxes[view.id], now, current, phone=True) for view in views]
    lines = [_line(edge, found, views, wide=False) for edge in found.edges]
    return Picture("tb", found.cross, found.main, shapes, sorted(lines, key=lambda line: line.css == "done"))


def _height(view: StepView) -> float:
    if not (view.is_fan_out and view.tally.total):
        return 48
    return 58 + SHARD_HEIGHT * len(view.rows) + 3 if view.tally.total <= NAMED else 70


def _shape(view: StepView, box: Box, now: datetime, current: str, *, phone: bool) -> Shape:
    width, height = (box.size.cross, box.size.main) if phone else (box.size.main, box.size.cross)
    fits = int((width - (32 if phone else 41)) / (6.2 if phone and width < 120 else CHAR))
    sub, count = subtitle(view, now), _count(view)
    shape = Shape(
        id=view.id,
        x=round(box.cross if phone else box.main, 1),
        y=round(box.main if phone else box.cross, 1),
        width=round(width, 1),
        height=height,
        css=_css(view),
        look=view.look,
        title=cut(view.id, fits),
        sub=cut(sub, int((width - 24 - len(count) * 8) / 6.0)),
        count=count,
        sheet=view.node.is_fan_out,
        label=f"{view.id}: {view.look.word}, {sub}" + (f", {count} shards done" if count else ""),
        current=view.id == current,
    )
    if not phone and view.is_fan_out and view.tally.total:
        if view.tally.total <= NAMED:
            shape.shards = [_shard(row, 68 + SHARD_HEIGHT * i, width - 46, now) for i, row in enumerate(view.rows)]
        else:
            shape.bars = shard_bars(view, 12, width - 24)
    return shape


def _shard(view: RowView, y: float, room: float, now: datetime) -> Text:
    row = view.row
    if row.state == StepState.WAITING and row.waiting_for == WaitingFor.RETRY:
        right = f"try {row.attempt + 1} of {row.max_attempts}"
    elif row.state == StepState.WAITING:
        right = "waits"  # for what is in the list; here is no room for it
    elif view.seconds is None:
        right = view.look.word.lower()
    else:
        right = span(view.seconds)
    return Text(y, view.look, cut(row.shard, max(4, int((room - len(right) * SMALL) / MONO))), right)


def shard_bars(view: StepView, x: float, width: float) -> list[Bar]:
    """How the shards of a fan-out stand, as parts of one bar."""
    tally, bars, at = view.tally, [], x
    done_fill = "f-comp" if tally.undone and not tally.open else "f-ok"
    retry = tally.waits[WaitingFor.RETRY]
    parts = [
        (tally.states[StepState.DONE] + tally.states[StepState.SKIPPED], done_fill),
        (tally.states[StepState.RUNNING], "f-run"),
        (retry, "f-retry"),
        (tally.states[StepState.FAILED] + tally.states[StepState.REJECTED], "f-fail"),
        (tally.states[StepState.CANCELLED] + tally.states[StepState.WAITING] - retry, "f-idle"),
    ]
    for count, fill in parts:
        if count:
            part = max(width * count / tally.total, 2.0)
            bars.append(Bar(round(at, 1), round(min(part, x + width - at), 1), fill))
            at += part
    return [bar for bar in bars if bar.width > 0]


def _count(view: StepView) -> str:
    shown = view.is_fan_out and 0 < view.tally.total < 1000
    return f"{view.good:,}/{view.tally.total:,}" if shown else ""


def _css(view: StepView) -> str:
    if view.look.tone == "comp":
        return "n-comp"
    if view.letter == NodeState.ACTIVE:
        return f"n-active t-{view.look.tone}"
    if view.look.tone == "fail":
        return "n-fail"
    return "n-idle" if view.look.tone == "idle" else ""


def subtitle(view: StepView, now: datetime) -> str:
    """The second line of a box: how long it took, what it waits for, how long it usually takes."""
    spec, seconds = view.node.spec, view.seconds(now)
    if view.tally.undone and view.look.tone == "comp" and view.tally.undone_at:
        return "undone" if view.is_fan_out else f"undone {clock(view.tally.undone_at, now)}"
    if view.is_fan_out and view.tally.total:
        many = f"{view.good:,} of {view.tally.total:,}" if view.tally.total >= 1000 else f"{view.tally.total} shards"
        return many if view.tally.total != 1 else "1 shard"
    if view.letter == NodeState.PENDING:
        return _planned(view)
    if view.letter == NodeState.BLOCKED:
        return "not reached"
    if view.letter == NodeState.ACTIVE:
        if view.tally.waits[WaitingFor.RETRY] and view.rows:
            return f"try {view.rows[0].row.attempt + 1} of {view.rows[0].row.max_attempts}"
        if spec.does == "approval":
            return f"by {spec.approval.group}" if spec.approval else "approval"
        since = view.tally.start or view.tally.ready
        return f"for {span((now - since).total_seconds())}" if since else view.look.word.lower()
    return span(seconds) if seconds is not None else view.look.word.lower()


def _planned(view: StepView) -> str:
    spec = view.node.spec
    if spec.does == "wait" and spec.wait is not None:
        return f"waits {format_duration(spec.wait)}"
    if spec.does == "approval" and spec.approval:
        return f"by {spec.approval.group}"
    if view.planned is not None:
        return f"about {span(view.planned)}"
    if spec.does == "workflow":
        return f"runs {spec.workflow}"
    if spec.when:
        return f"when {spec.when}"
    return f"on {spec.queue}"


def cut(text: str, length: int) -> str:
    """The text, shortened to ``length`` characters."""
    return text if len(text) <= length else text[: max(length - 1, 1)].rstrip() + "…"


def _line(edge: Edge, found: Layout, views: list[StepView], *, wide: bool) -> Line:
    a, b = found.boxes[edge.start], found.boxes[edge.end]
    letters = {view.id: view.letter for view in views}
    done = letters[edge.start] in NODE_SATISFIED and letters[edge.end] not in (NodeState.PENDING, NodeState.BLOCKED)
    points = [(a.main + a.size.main, a.middle)]
    path = [_point("M", *points[0], wide=wide)]
    at_main, at_cross = points[0]
    for start, end, cross in edge.bends:
        path += [_curve(at_main, at_cross, start, cross, wide=wide), _point("L", end, cross, wide=wide)]
        at_main, at_cross = end, cross
    tip = b.main - 6
    path.append(_curve(at_main, at_cross, tip, b.middle, wide=wide))
    x, y = (tip - 1, b.middle - 3.5) if wide else (b.middle - 3.5, tip - 1)
    arrow = f"M{x:.1f} {y:.1f}" + ("v7l5-3.5Z" if wide else "h7l-3.5 5Z")
    return Line("".join(path), arrow, "done" if done else "todo")


def _point(command: str, main: float, cross: float, *, wide: bool) -> str:
    return f"{command}{main:.1f} {cross:.1f}" if wide else f"{command}{cross:.1f} {main:.1f}"


def _curve(main: float, cross: float, to_main: float, to_cross: float, *, wide: bool) -> str:
    half = (main + to_main) / 2
    if wide:
        return f"C{half:.1f} {cross:.1f} {half:.1f} {to_cross:.1f} {to_main:.1f} {to_cross:.1f}"
    return f"C{cross:.1f} {half:.1f} {to_cross:.1f} {half:.1f} {to_cross:.1f} {to_main:.1f}"
