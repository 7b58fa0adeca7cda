"""The timeline of a run: a row for each step, bars in percent of the time shown. Numbers only; a template draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.utils import timezone

from dashboard.queries.run_steps import RowView, StepView
from dashboard.words import Look
from orchestrator.core.states import Cause, NodeState, RunState, StepState, WaitingFor
from orchestrator.engine.explain_words import span
from orchestrator.models import Run, Step

#: Rows at most; of a longer workflow the steps that were reached come first.
MAX_ROWS = 60
NAMED = 6
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)


@dataclass(frozen=True)
class Mark:
    """A bar (``kind`` a fill class or ``fail``, ``wait``, ``plan``, ``span``) from ``x`` on, in percent."""

    kind: str
    x: float
    width: float

    @property
    def end(self) -> float:
        """Where it ends."""
        return round(self.x + self.width, 2)


@dataclass
class Lane:
    """One row: a step or a shard."""

    name: str
    look: Look
    shard: bool
    time: str
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Tick:
    """A moment on the axis."""

    x: float
    text: str
    optional: bool


@dataclass
class Timeline:
    """Everything the drawing needs. ``now`` and ``deadline`` are None outside the time shown."""

    lanes: list[Lane]
    ticks: list[Tick]
    now: float | None
    deadline: float | None
    left_out: int

    kinds: set[str]
    planned: bool

    @property
    def anchors(self) -> tuple[str, str]:
        """How the words "now" and "deadline" are set, so that they do not cover each other."""
        if self.now is None or self.deadline is None or abs(self.now - self.deadline) > 16:
            return "middle", "middle"
        return ("start", "end") if self.now > self.deadline else ("end", "start")


class _Axis:
    def __init__(self, start: datetime, end: datetime) -> None:
        self.start, self.seconds = start, max((end - start).total_seconds(), 1.0)

    def at(self, moment: datetime) -> float:
        share = (moment - self.start).total_seconds() / self.seconds
        return round(min(max(share, 0.0), 1.0) * 100, 2)

    def mark(self, kind: str, start: datetime, end: datetime) -> Mark:
        x = self.at(start)
        width = max(self.at(end) - x, 0.35)
        return Mark(kind, min(x, 100 - width), round(width, 2))


Undos = Mapping[int, list[Step]]


def timeline(run: Run, views: list[StepView], undos: Undos, now: datetime) -> Timeline | None:
    """The timeline, or None for a run that has not begun. ``undos``: compensations by the row that they undo."""
    begun = [at for view in views if (at := view.tally.ready or view.tally.start)]
    if not begun:
        return None
    live = run.finished_at is None
    begin = min(moment for moment in begun if moment)
    if run.started_at:
        begin = min(begin, run.started_at)
    plan = _plan(views, now) if run.state == RunState.RUNNING and not run.stop else {}
    last = max([run.finished_at or now, *(end for _, end in plan.values())])
    ahead = max((last - begin).total_seconds(), 1.0)
    deadline = run.deadline_at
    if deadline and live and begin < deadline <= begin + timedelta(seconds=ahead * 2.2):
        last = max(last, deadline)
    pad = (last - begin) * 0.035
    axis = _Axis(begin - pad, last + pad)
    lanes = [lane for view in _fitting(views) for lane in _lanes(axis, view, undos, plan, now)]
    now_at = axis.at(now) if live else None
    shown = axis.at(deadline) if deadline and axis.start < deadline <= last + pad else None
    kinds = {mark.kind for lane in lanes for mark in lane.marks}
    return Timeline(lanes, _ticks(axis, [x for x in (now_at, shown) if x is not None]), now_at, shown,
                    max(len(views) - MAX_ROWS, 0), kinds, bool(plan))  # fmt: skip


def _fitting(views: list[StepView]) -> list[StepView]:
    if len(views) <= MAX_ROWS:
        return views
    kept = {v.id for v in [*(v for v in views if v.begun), *(v for v in views if not v.begun)][:MAX_ROWS]}
    return [view for view in views if view.id in kept]


def _plan(views: list[StepView], now: datetime) -> dict[str, tuple[datetime, datetime]]:
    """When the steps under way and to come would run, from how long they usually take; none where one is unknown."""
    ends: dict[str, datetime] = {}
    plan: dict[str, tuple[datetime, datetime]] = {}
    for view in views:
        if view.letter not in (NodeState.PENDING, NodeState.ACTIVE):
            ends[view.id] = view.tally.end or now
            continue
        length = view.planned if view.planned is not None else view.node.spec.wait
        if length is None:
            return {}
        start = max([now, *(ends.get(step, now) for step in view.node.spec.after)])
        if view.letter == NodeState.ACTIVE:
            spent = view.seconds(now) or 0.0
            ends[view.id] = now + timedelta(seconds=max(length - spent, length * 0.05))
            plan[view.id] = (now, ends[view.id])
        else:
            ends[view.id] = start + timedelta(seconds=length)
            plan[view.id] = (start, ends[view.id])
    return plan


def _lanes(
    axis: _Axis, view: StepView, undos: Undos, plan: Mapping[str, tuple[datetime, datetime]], now: datetime
) -> list[Lane]:
    seconds = view.seconds(now)
    lane = Lane(view.id, view.look, False, span(seconds) if seconds is not None else "–")
    planned = plan.get(view.id)
    if view.letter == NodeState.PENDING:
        if planned:
            lane.marks.append(axis.mark("plan", *planned))
            lane.time = f"~{span((planned[1] - planned[0]).total_seconds())}"
        return [lane]
    lanes = [lane]
    tally = view.tally
    if view.is_fan_out and tally.total:
        if tally.start:
            end = now if tally.open or not tally.end else tally.end
            lane.marks.append(axis.mark("span", tally.start, end))
        if tally.total <= NAMED:
            lanes += [_shard_lane(axis, row, undos, now) for row in view.rows]
    elif view.rows:
        lane.marks += _row_marks(axis, view.rows[0], undos, now)
    if planned and view.letter == NodeState.ACTIVE:
        lanes[-1].marks.append(axis.mark("plan", *planned))
    return lanes


def _shard_lane(axis: _Axis, view: RowView, undos: Undos, now: datetime) -> Lane:
    text = span(view.seconds) if view.seconds is not None else "–"
    return Lane(view.row.shard, view.look, True, text, _row_marks(axis, view, undos, now))


def _row_marks(axis: _Axis, view: RowView, undos: Undos, now: datetime) -> list[Mark]:
    row, marks = view.row, []
    last_end: datetime | None = None
    for attempt in view.attempts[-20:]:
        start = attempt.started_at or attempt.finished_at
        if last_end and start > last_end:
            marks.append(axis.mark("wait", last_end, start))
        kind = "f-idle" if attempt.cause == Cause.CANCELLED else "fail"
        marks.append(axis.mark(kind, start, attempt.finished_at))
        last_end = attempt.finished_at
    if row.state == StepState.RUNNING and row.started_at:
        marks.append(axis.mark("f-run", row.started_at, now))
    elif row.state == StepState.WAITING:
        start = last_end or row.first_started_at or row.created_at
        marks.append(
            axis.mark("wait", start, now if row.waiting_for != WaitingFor.RETRY else max(now, row.ready_at or now))
        )
    elif row.state == StepState.QUEUED:
        marks.append(axis.mark("queue", row.ready_at or row.created_at, now))
    elif row.finished_at and row.started_at and row.state in (StepState.DONE, StepState.CANCELLED):
        if last_end and row.started_at > last_end:
            marks.append(axis.mark("wait", last_end, row.started_at))
        marks.append(axis.mark("f-ok" if row.state == StepState.DONE else "f-idle", row.started_at, row.finished_at))
    elif row.finished_at and row.state == StepState.DONE:  # a timer, an approval, child runs: no worker had it
        marks.append(axis.mark("wait", row.first_started_at or row.created_at, row.finished_at))
    begun = undos.get(row.pk, [])
    marks += [axis.mark("f-comp", undo.started_at, undo.finished_at or now) for undo in begun if undo.started_at]
    return marks


def _ticks(axis: _Axis, taken: list[float]) -> list[Tick]:
    """Round moments of the reader's clocks; the first on another day than the one before names its day."""
    step = next((s for s in _TICKS if axis.seconds / s <= 6), _TICKS[-1])
    start = axis.start.astimezone(timezone.get_current_timezone())
    ahead = start.utcoffset() or timedelta()  # a change of the clocks in the middle only moves the marks
    first = (start.timestamp() + ahead.total_seconds()) // step * step + step - ahead.total_seconds()
    ticks: list[Tick] = []
    moment, day = datetime.fromtimestamp(first, start.tzinfo), start.date()
    end = axis.start + timedelta(seconds=axis.seconds)
    while moment < end:
        x = axis.at(moment)
        if 2 < x < 97 and all(abs(x - other) > 7.5 for other in taken):
            crowded = any(abs(x - other) < 18 for other in taken)
            new_day, day = moment.date() != day, moment.date()
            ticks.append(Tick(x, _tick_text(moment, step, new_day), not new_day and (crowded or len(ticks) % 2 == 1)))
        moment += timedelta(seconds=step)
    return ticks


def _tick_text(moment: datetime, step: int, new_day: bool) -> str:
    date = f"{moment.day} {moment:%b}"
    if step >= 86400 or (new_day and f"{moment:%H%M}" == "0000"):
        return date
    time = f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"
    return f"{date} {time}" if new_day else time
