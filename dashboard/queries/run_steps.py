"""Rows of one run for its page: a summary of every step, and the shards that are shown."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Case, F, Q, Value, When, Window
from django.db.models.functions import RowNumber

from dashboard import words
from dashboard.queries.run_tries import Tries
from dashboard.words import Look
from orchestrator.core.states import Cause, Kind, NodeState, RunState, StepState, WaitingFor, is_terminal
from orchestrator.engine.explain_facts import Facts, Tally
from orchestrator.engine.plans import Node
from orchestrator.models import Attempt, Run, Step

#: Shards of a fan-out that are shown without asking for more.
SHOWN = 8
#: Shards on one page of all of them.
PAGE = 100
FAILED = (StepState.FAILED, StepState.REJECTED)
#: What wants attention first.
RANK = Case(
    When(state__in=FAILED, then=Value(0)),
    When(waiting_for=WaitingFor.RETRY, then=Value(1)),
    When(state=StepState.RUNNING, then=Value(2)),
    When(state=StepState.WAITING, then=Value(3)),
    When(state=StepState.QUEUED, then=Value(4)),
    When(state=StepState.PENDING, then=Value(6)),
    default=Value(5),
)
UNDO_FAILED = Look("Undo failed", "s-fail", "fail")
#: States by which the shards of a page can be narrowed down.
SHARD_FILTERS = ("failed", "retry", "running", "waiting", "queued", "pending", "done", "skipped", "cancelled")


@dataclass
class RowView:
    """One executable row as it is shown."""

    row: Step
    attempts: list[Attempt]
    now: datetime
    undo_failed: bool = False

    @property
    def look(self) -> Look:
        """Shape, word and colour; an undone row is shown as undone, one that waits says for what."""
        return row_look(self.row, self.undo_failed)

    @property
    def seconds(self) -> float | None:
        """From the first start to the end, or until now."""
        start = self.row.first_started_at or self.row.started_at
        return ((self.row.finished_at or self.now) - start).total_seconds() if start else None

    @property
    def failures(self) -> int:
        """Attempts that failed; those of a row beyond what was read are counted by the row's number."""
        row, read = self.row, sum(attempt.cause != Cause.CANCELLED for attempt in self.attempts)
        last_failed = row.state in FAILED or row.waiting_for == WaitingFor.RETRY
        return max(read, row.attempt - (0 if last_failed else 1), 0)


@dataclass
class StepView:
    """A step of the definition within this run. ``planned``: seconds that it usually takes."""

    node: Node
    tally: Tally
    letter: str
    look: Look
    planned: float | None = None
    rows: list[RowView] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The step's id."""
        return self.node.id

    @property
    def is_fan_out(self) -> bool:
        """Whether it is shown with shards: one that was skipped as a whole is not."""
        return self.node.is_fan_out and not (self.rows and not self.rows[0].row.shard)

    @property
    def begun(self) -> bool:
        """Whether it was reached."""
        return self.letter not in (NodeState.PENDING, NodeState.BLOCKED)

    @property
    def finished(self) -> int:
        """Shards that ended."""
        return self.tally.total - self.tally.open

    @property
    def good(self) -> int:
        """Shards that ended well."""
        return self.tally.states[StepState.DONE]

    @property
    def calm(self) -> bool:
        """Whether so many shards retry that marking them all would mark nothing."""
        return self.tally.waits[WaitingFor.RETRY] > 3

    def seconds(self, now: datetime) -> float | None:
        """From its first start to its end, or until now while it is open."""
        start, end = self.tally.start, self.tally.end
        if start is None:
            return None
        return ((end if not self.tally.open and end else now) - start).total_seconds()


def row_look(row: Step, undo_failed: bool = False) -> Look:
    """How one row is shown. One that failed stays failed, whether it was undone or not."""
    if row.undone_at is not None and row.kind == Kind.STEP and row.state == StepState.DONE:
        return UNDO_FAILED if undo_failed else words.MARK["undone"]
    if row.state == StepState.SKIPPED and row.cause == Cause.BLOCKED:
        return Look("Not reached", "s-stop", "idle")
    return words.look(row.state, "step", row.waiting_for)


def step_views(facts: Facts, usual: dict[str, float], shown: list[Step], tries: Tries) -> list[StepView]:
    """Every step of the definition in its order, with the rows that are ``shown``."""
    rows: dict[str, list[RowView]] = defaultdict(list)
    for row in shown:
        rows[row.step].append(RowView(row, tries.of(row), facts.now, row.pk in facts.not_undone))
    views = []
    letters = facts.run.node_states.ljust(len(facts.plan.nodes), NodeState.PENDING)
    for node, letter in zip(facts.plan.nodes, letters, strict=False):
        tally = facts.steps[node.id]
        look = _step_look(facts, node, letter, tally.undone)
        views.append(StepView(node, tally, letter, look, usual.get(node.id), rows.get(node.id, [])))
    return views


def first_of_each(run: Run) -> list[Step]:
    """Of each step the rows that want attention most, at most :data:`SHOWN`."""
    place = Window(RowNumber(), partition_by=F("step"), order_by=[RANK.asc(), F("ordinal").asc(), F("id").asc()])
    rows = Step.objects.filter(run=run, kind=Kind.STEP).annotate(place=place).filter(place__lte=SHOWN)
    return list(rows.defer("output", "item", "log").order_by("ordinal", "id"))


def _step_look(facts: Facts, node: Node, letter: str, undone: int) -> Look:
    tally, stopped = facts.steps[node.id], facts.run.state != RunState.RUNNING
    if letter == NodeState.PENDING:
        return words.STEP[StepState.PENDING]
    if letter == NodeState.BLOCKED:
        return Look("Not reached", "s-stop", "idle")
    # What failed or was stopped has not become undone because an on_failure entry undoes everything.
    bad = tally.states[StepState.FAILED] + tally.states[StepState.REJECTED]
    if undone and stopped and tally.states[StepState.DONE] and not bad and letter != NodeState.FAILED:
        return UNDO_FAILED if node.id in facts.not_undone.values() else words.MARK["undone"]
    if tally.waits[WaitingFor.RETRY]:
        return words.WAITING[WaitingFor.RETRY]
    for state in (StepState.RUNNING, StepState.WAITING, StepState.QUEUED, StepState.PENDING):
        if tally.states[state]:
            waits = next(iter(+tally.waits), None)
            return words.look(state, "step", waits)
    if letter == NodeState.CANCELLED and bad:
        return words.STEP[StepState.FAILED]  # the fan-out was stopped because one of its shards failed
    names = {
        NodeState.DONE: "done",
        NodeState.FAILED: "failed",
        NodeState.SKIPPED: "skipped",
        NodeState.CANCELLED: "cancelled",
    }
    return words.look(names.get(NodeState(letter), "pending"), "step")


@dataclass
class ShardPage:
    """One page of all shards of a fan-out, in the order of its items."""

    step: str
    wanted: str
    counts: list[tuple[str, str, int]]
    rows: list[RowView]
    next: int | None
    total: int


def shards_of(facts: Facts, step: str, wanted: str, after: int) -> list[Step] | None:
    """Rows of a fan-out behind ordinal ``after``, one more than a page holds, narrowed to one of
    :data:`SHARD_FILTERS`; None: no such fan-out."""
    if step not in facts.plan.by_id or not facts.plan.by_id[step].is_fan_out:
        return None
    rows = Step.objects.filter(run=facts.run, step=step, kind=Kind.STEP, ordinal__gt=after)
    match wanted:
        case "retry":
            rows = rows.filter(waiting_for=WaitingFor.RETRY)
        case "waiting":
            rows = rows.filter(Q(state=StepState.WAITING) & ~Q(waiting_for=WaitingFor.RETRY))
        case "failed":
            rows = rows.filter(state__in=FAILED)
        case "":
            pass
        case _:
            rows = rows.filter(state=wanted)
    return list(rows.defer("output", "item", "log").order_by("ordinal")[: PAGE + 1])


def shard_page(facts: Facts, step: str, wanted: str, found: list[Step], tries: Tries) -> ShardPage:
    """The page that :func:`shards_of` read."""
    tally = facts.steps[step]
    views = [RowView(row, tries.of(row), facts.now, row.pk in facts.not_undone) for row in found[:PAGE]]
    following = found[PAGE - 1].ordinal if len(found) > PAGE else None
    return ShardPage(step, wanted, _counts(tally), views, following, tally.total)


def _counts(tally: Tally) -> list[tuple[str, str, int]]:
    """(filter, word, count) of the states that occur."""
    counts = {name: tally.states[name] for name in SHARD_FILTERS}
    counts["failed"] = tally.states[StepState.FAILED] + tally.states[StepState.REJECTED]
    counts["retry"] = tally.waits[WaitingFor.RETRY]
    counts["waiting"] = tally.states[StepState.WAITING] - counts["retry"]
    names = {"retry": "Retrying"}
    return [(name, names.get(name, name.capitalize()), n) for name, n in counts.items() if n]


def is_open(view: StepView | RowView) -> bool:
    """Whether something of it is still to come."""
    return bool(view.tally.open) if isinstance(view, StepView) else not is_terminal(view.row.state)
