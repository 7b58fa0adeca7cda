"""One kind of run, worked out once: its rows, letters, counters and records. Times are shares of the run's length.

An :class:`Outline` is built from the compiled definition by the functions below, so that what must agree (letters with
rows, counters with states, the undo with what had started) agrees by construction. ``stamp.py`` writes it as often as
wanted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core.fingerprint import fingerprint
from orchestrator.core.states import (
    STEP_TERMINAL,
    Cause,
    Kind,
    NodeState,
    RunState,
    StepState,
    StopReason,
    Undo,
    WaitingFor,
)
from orchestrator.engine.plans import Node, Plan

#: Where the main part of a run that stops is over and its undo begins.
STOP = 0.8
OPEN = frozenset(StepState) - STEP_TERMINAL


@dataclass
class Row:
    """A row of ``workflow_steps``. ``a`` to ``b``: from the first start to the last end; ``fails``: attempts failed."""

    step: str
    shard: str
    ordinal: int
    kind: Kind
    state: StepState
    queue: str
    a: float | None = None
    b: float | None = None
    tries: int = 0
    fails: int = 0
    max_attempts: int = 1
    cause: Cause | None = None
    fail_cause: Cause | None = None
    error: dict[str, str] | None = None
    waiting_for: WaitingFor | None = None
    waiting_name: str | None = None
    due: tuple[float, float] | None = None
    topic: str | None = None
    lock: str | None = None
    item: Any = None
    output: Any = None
    progress: float | None = None
    note: str | None = None
    undoes: tuple[str, str] | None = None
    undoes_steps: list[str] | None = None
    undone: float | None = None
    fail_error: dict[str, str] | None = None
    child: str | None = None
    letter: str | None = None
    fingerprint: str | None = None


@dataclass
class Outline:
    """A kind of run. ``weight`` is its share of the ended ones or of the live ones; ``length``: seconds, between."""

    name: str
    plan: Plan
    weight: float
    length: tuple[float, float]
    state: RunState = RunState.RUNNING
    cause: Cause | None = None
    compensation: Undo | None = None
    stop: StopReason | None = None
    error: dict[str, str] | None = None
    rows: list[Row] = field(default_factory=list)
    letters: dict[str, NodeState] = field(default_factory=dict)
    events: list[tuple[float, str, str, str, str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    retries: int = 0
    missed: bool = False
    delayed: bool = False
    hold: bool = False
    current: str = ""

    @property
    def node_states(self) -> str:
        """The letters in the order of the definition."""
        return "".join(self.letters.get(node.id, NodeState.PENDING) for node in self.plan.nodes)

    @property
    def pending(self) -> int:
        """Rows that are open."""
        return sum(row.state in OPEN for row in self.rows)

    def fan_outs(self) -> list[tuple[str, int, Counter[str], int]]:
        """(step, total, states, window) of each fan-out that was reached."""
        found = []
        for node in self.plan.nodes:
            shards = [r for r in self.rows if r.kind == Kind.STEP and r.step == node.id and r.shard]
            if shards:
                counts = Counter(str(r.state) for r in shards)
                found.append((node.id, len(shards), counts, node.spec.window or 1000))
        return found

    def move(self, at: float, was: str, to: str, **more: Any) -> None:
        """A change of state on record."""
        self.events.append((at, "state", "engine", "", "", {"state": was}, {"state": to, **more}))


def spans(plan: Plan, weights: dict[str, float], until: float = 1.0) -> dict[str, tuple[float, float]]:
    """When each step runs: after all that it comes after, as long as its weight says."""
    ends: dict[int, float] = {}
    raw = {}
    for node in plan.nodes:
        begin = max((ends[i] for i in node.after), default=0.0)
        ends[node.index] = begin + weights.get(node.id, 1.0)
        raw[node.id] = (begin, ends[node.index])
    whole = max(ends.values())
    return {step: (0.002 + a / whole * (until - 0.006), b / whole * (until - 0.006)) for step, (a, b) in raw.items()}


def items_of(node: Node, count: int = 0) -> list[Any]:
    """The items of a fan-out; where they come from an output, ``count`` addresses."""
    fan = node.spec.fan_out
    if fan is None:
        return [""]
    return list(fan.items) if fan.items is not None else [f"reader-{i:05d}@mail.example" for i in range(count)]


def rows_of(node: Node, span: tuple[float, float], state: StepState, count: int = 0, **values: Any) -> list[Row]:
    """A row for the step or one for each shard, in this state."""
    spec, (a, b) = node.spec, span
    found = []
    for index, item in enumerate(items_of(node, count)):
        wide = node.is_fan_out
        begun = state not in (StepState.SKIPPED, StepState.QUEUED, StepState.PENDING)
        row = Row(
            node.id,
            str(item) if wide else "",
            index,
            Kind.STEP,
            state,
            spec.queue,
            a if begun else None,
            b - (b - a) * 0.08 * (index % 5),
            int(begun and spec.does == "handler"),
            max_attempts=1 + spec.retries,
            topic=spec.topic.name if spec.topic else None,
            lock=spec.lock,
            item=item if wide else None,
            child=spec.workflow,
        )
        if state == StepState.DONE:
            row.output, row.progress = {"ok": True, "part": node.id}, 1.0
        for name, value in values.items():
            setattr(row, name, value)
        found.append(row)
    return found


def fill(outline: Outline, weights: dict[str, float], *, upto: str | None = None, skip: tuple[str, ...] = ()) -> None:
    """Rows of everything that is over before ``upto`` is reached; steps in ``skip`` were not needed."""
    until = STOP if outline.state not in (RunState.RUNNING, RunState.DONE) else 1.0
    times = spans(outline.plan, weights, until)
    for node in outline.plan.nodes:
        if node.id == upto:
            break
        state = StepState.SKIPPED if node.id in skip else StepState.DONE
        outline.rows += rows_of(node, times[node.id], state, 40)
        outline.letters[node.id] = NodeState.SKIPPED if node.id in skip else NodeState.DONE


def stumble(row: Row, fails: int, cause: Cause, error: dict[str, str]) -> None:
    """The row's first attempts failed."""
    row.fails, row.tries, row.fail_cause, row.fail_error = fails, fails + 1, cause, error
    row.max_attempts = max(row.max_attempts, fails + 1)


def break_down(outline: Outline, rows: list[Row], place: int, cause: Cause, error: dict[str, str]) -> Row:
    """One of these rows fails for good, after all its attempts, and the run stops for it."""
    row = rows[place]
    row.state, row.cause, row.fail_cause, row.error = StepState.FAILED, cause, cause, error
    row.tries = row.fails = row.max_attempts
    row.b, row.output, row.progress = STOP, None, None
    letter(outline, row)
    outline.rows += rows
    outline.letters[row.step] = NodeState.FAILED
    outline.cause, outline.stop = cause, StopReason.FAILURE
    outline.error = {"type": error["type"], "message": error["message"], "step": row.step, "shard": row.shard}
    return row


def letter(outline: Outline, row: Row, state: str = "open") -> None:
    """The row is in the dead letters."""
    row.letter = state
    error = row.error or row.fail_error or {}
    known = (error.get("type", ""), error.get("message", "").replace("{n}", "1"))
    row.fingerprint = fingerprint(outline.plan.workflow, row.step, str(row.fail_cause or row.cause), *known)


def block(outline: Outline) -> None:
    """Writes down what was never reached."""
    for node in outline.plan.nodes:
        if node.id not in outline.letters:
            row = Row(node.id, "", 0, Kind.STEP, StepState.SKIPPED, node.spec.queue, cause=Cause.BLOCKED, b=STOP)
            row.max_attempts = 1 + node.spec.retries
            outline.rows.append(row)
            outline.letters[node.id] = NodeState.BLOCKED


def undo(outline: Outline, *, stop_at: int | None = None, broken: int | None = None) -> None:
    """Rows of the undo: all done, or up to ``stop_at`` (which runs), or with number ``broken`` failed for good."""
    started = [r for r in outline.rows if r.kind == Kind.STEP and r.tries]
    planned: list[tuple[Any, Row | None]] = []
    for row in sorted(started, key=lambda r: (r.a or 0, r.ordinal), reverse=True):
        spec = outline.plan.by_id[row.step].spec.compensate
        if spec is not None:
            planned.append((spec, row))
    planned += [(spec, None) for spec in outline.plan.spec.on_failure.compensate] if started else []
    wave, before = -1, ""
    for number, (spec, victim) in enumerate(planned):
        wave, before = (wave, before) if victim and victim.step == before else (wave + 1, victim.step if victim else "")
        a = STOP + 0.01 + number * 0.18 / len(planned)
        row = Row(spec.name, victim.shard if victim else "", wave, Kind.COMPENSATION, StepState.DONE, spec.queue)
        row.a, row.b, row.tries, row.max_attempts = a, a + 0.16 / len(planned), 1, spec.retries + 1
        row.undoes = (victim.step, victim.shard) if victim else None
        row.undoes_steps = [victim.step] if victim else list(spec.undoes)
        if stop_at is not None and number >= stop_at:
            row.state = StepState.RUNNING if number == stop_at else StepState.PENDING
            if number > stop_at:
                row.a, row.tries = None, 0
        elif victim is not None:
            victim.undone = row.b
        if number == broken:
            row.state, row.cause, row.fail_cause = StepState.FAILED, Cause.ERROR, Cause.ERROR
            row.error = {"type": "PermissionError", "message": "the gateway refuses to undo payment {n}"}
            row.tries = row.fails = row.max_attempts
            letter(outline, row)
        outline.rows.append(row)
        outline.current = row.step if row.state == StepState.RUNNING else outline.current
    if planned:
        outline.compensation = (
            Undo.RUNNING if stop_at is not None else Undo.PARTIAL if broken is not None else Undo.DONE
        )
