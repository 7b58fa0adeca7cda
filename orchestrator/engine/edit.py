"""What one transaction is about to do to one locked run, collected in memory and written by ``transitions``.

Deciding and writing are apart: :mod:`advance` and :mod:`unwind` fill a :class:`RunEdit` from the locked row and the
pinned definition, :mod:`transitions` turns the edits of any number of runs into a few set-based statements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from orchestrator.core.actor import Actor
from orchestrator.core.states import Cause, Kind, NodeState, RunState, StepState, StopReason
from orchestrator.engine.plans import Node, Plan


@dataclass(slots=True)
class NewStep:
    """A row of ``workflow_steps`` to be made. ``item`` and ``error`` are JSON text."""

    step: str
    state: StepState
    shard: str = ""
    ordinal: int = 0
    kind: Kind = Kind.STEP
    cause: Cause | None = None
    waiting_for: str | None = None
    max_attempts: int = 1
    queue: str = "default"
    item: str | None = None
    error: str | None = None
    topic: str | None = None
    lock_name: str | None = None
    waiting_name: str | None = None
    token: int | None = None
    ready_in: float | None = 0.0


@dataclass(slots=True)
class NewFanOut:
    """Counters of a fan-out to be made. ``items`` are JSON texts; ``bulk``: its rows are made by one statement."""

    step: str
    shards: list[str]
    items: list[str]
    window: int
    max_attempts: int
    queue: str
    bulk: bool
    topic: str | None
    locks: list[str | None]
    join_timeout: float | None


@dataclass(slots=True)
class Remade:
    """A step of a retry whose rows are there. ``fan_out`` is what it is to be now, None where it is not to run at all.

    ``changed`` says of each of its shards whether it has another item now; ``shift`` by how many open rows it grows;
    ``cause`` why shards that are not to run now are skipped, None where they are not wanted any more.
    """

    step: str
    fan_out: NewFanOut | None
    changed: list[bool]
    shift: int
    cause: Cause | None = None


class Take(Protocol):
    """How many of ``count`` rows of a node that becomes ready the calling worker takes at once (0 outside one)."""

    def __call__(self, plan: Plan, node: Node, count: int) -> int: ...  # noqa: D102


#: Reads the output of a step of a run, or without a node the run's input: ``(run id, node) -> JSON value``.
ReadOutput = Callable[[UUID, Node | None], Any]


@dataclass(slots=True)
class Audit:
    """One audit record of the run. ``before`` and ``after`` are JSON text."""

    action: str
    before: str | None
    after: str | None
    actor: str = "engine"
    role: str = ""
    reason: str = ""

    @classmethod
    def of(cls, actor: Actor, action: str, reason: str, before: Any = None, after: Any = None) -> Audit:
        """What somebody does. ``before`` and ``after`` are values that JSON can hold; None for nothing to say."""
        was, now = (None if value is None else json.dumps(value, ensure_ascii=False) for value in (before, after))
        return cls(action, was, now, actor.name, actor.role, reason.strip())


@dataclass(slots=True)
class RunEdit:
    """Changes to one run. ``row`` is the locked row (sql/lock_runs); ``nodes`` its letters, as they will be."""

    row: Any
    plan: Plan
    nodes: list[str]
    delta: int = 0
    candidates: list[int] = field(default_factory=list)
    current_step: str | None = None
    state: RunState | None = None
    cause: Cause | None = None
    error: str | None = None
    stop: StopReason | None = None
    compensation: str | None = None
    #: Seconds to wait for an operator before the undo begins; 0 ends a wait.
    hold: float | None = None
    output: str | None = None
    output_ref: str | None = None
    new_steps: list[NewStep] = field(default_factory=list)
    fan_outs: list[NewFanOut] = field(default_factory=list)
    remade: list[Remade] = field(default_factory=list)
    released: dict[str, int] = field(default_factory=dict)
    tickets: dict[str, tuple[str, int]] = field(default_factory=dict)
    audits: list[Audit] = field(default_factory=list)
    #: Outputs of plain steps closed in this transaction: (JSON text, artifact that holds it).
    outputs: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    undone: list[Any] = field(default_factory=list)
    #: Steps whose rows exist already, pending, this many each: a retry opens them again when they are reached.
    existing: dict[str, int] = field(default_factory=dict)
    #: Reads the shards of a step that a retry has reached: rows of (shard, state, item_text).
    look: Callable[[str], list[Any]] | None = None
    #: An attempt of the run ended in a wait: nothing to count, but the run was updated.
    waited: bool = False

    @classmethod
    def of(cls, row: Any, plan: Plan) -> RunEdit:
        """An edit of a locked row."""
        return cls(row, plan, list(row.node_states))

    @property
    def id(self) -> UUID:
        """The run's id."""
        run_id: UUID = self.row.id
        return run_id

    @property
    def touched(self) -> bool:
        """Whether there is anything to write about the run."""
        return bool(self.delta or self.released or self.state or self.stop or self.new_steps or self.waited)

    @property
    def stopping(self) -> StopReason | None:
        """Why nothing new starts, or None."""
        return self.stop or (StopReason(self.row.stop) if self.row.stop else None)

    @property
    def now_state(self) -> RunState:
        """The state as it will be written."""
        return self.state or RunState(self.row.state)

    @property
    def open_rows(self) -> int:
        """Rows of the run that are not terminal, as they will be."""
        pending: int = self.row.pending
        return pending + self.delta

    def add(self, new: NewStep) -> None:
        """Makes a row; one that is not terminal counts as open."""
        self.new_steps.append(new)
        if new.state in _OPEN:
            self.delta += 1

    def ticket(self, step: str, queue: str, count: int = 1) -> None:
        """Asks for ``count`` tickets more for a step; child runs need none."""
        if step in self.plan.by_id and self.plan.by_id[step].spec.workflow:
            return
        had = self.tickets.get(step)
        self.tickets[step] = (queue, count + (had[1] if had else 0))

    def released_state(self, step: str) -> StepState:
        """What rows of a step become when they are released: a child run needs no worker."""
        node = self.plan.by_id.get(step)
        return StepState.WAITING if node is not None and node.spec.workflow else StepState.QUEUED

    def is_gated(self, step: str) -> bool:
        """Whether rows of a step need a topic's slot or a lock."""
        node = self.plan.by_id.get(step)
        return node is not None and bool(node.spec.topic or node.spec.lock or self.row.lock_name)

    def mark(self, node: Node, letter: NodeState) -> None:
        """Sets a node's letter; one that has ended puts its successors up for opening."""
        self.nodes[node.index] = letter
        if letter is not NodeState.ACTIVE:
            self.candidates.extend(node.successors)

    def fail(self, cause: Cause, error: str | None) -> None:
        """A step failed for good: nothing new starts. The first cause stays."""
        self.halt(StopReason.FAILURE, cause, error)

    def halt(self, reason: StopReason, cause: Cause, error: str | None = None) -> None:
        """Nothing new starts in this run any more."""
        if not self.stopping:
            self.stop, self.cause, self.error = reason, cause, error

    def move(self, state: RunState, after: str) -> None:
        """Changes the run's state, with the record of it."""
        self.audits.append(Audit("state", f'{{"state":"{self.now_state}"}}', after))
        self.state = state


_OPEN = frozenset({StepState.PENDING, StepState.QUEUED, StepState.RUNNING, StepState.WAITING})


@dataclass(frozen=True, slots=True)
class Opening:
    """A run to be made. ``edit`` holds the rows it opens with, None where they come later. Texts are JSON."""

    id: UUID
    plan: Plan
    subject_id: str
    input: str
    labels: str
    key: str | None
    deadline: float
    delay: float
    lock_name: str | None
    on_lock_conflict: str | None
    exclusive_key: str | None
    after: tuple[UUID, ...]
    parent: tuple[UUID, int | None] | None
    #: A child takes no longer than its parent may.
    deadline_cap: datetime | None
    #: It waits to start: for other runs, or for one that it excludes.
    held: bool
    edit: RunEdit | None


class Made:
    """Rows that ``transitions.write`` makes; iterating fetches their ids, once the statements have been sent."""

    def __init__(self, news: list[tuple[RunEdit, NewStep]], cursor: Any) -> None:
        self.news = news
        self._cursor = cursor
        self._rows: dict[tuple[UUID, str, str], Any] | None = None

    def __iter__(self) -> Iterator[tuple[RunEdit, NewStep, Any]]:
        if self._rows is None:
            self._rows = {(r.run_id, r.step, r.shard): r for r in self._cursor.fetchall()} if self.news else {}
        for edit, new in self.news:
            yield edit, new, self._rows[edit.id, new.step, new.shard]
