"""Every state, cause and wait there is, and the one place that says which are final.

Pure vocabulary: no Django, no database. Columns, SQL, pages, API and metrics use these words and no others.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a whole run stands. Every run ends in one of the last three."""

    RUNNING = "running"
    COMPENSATING = "compensating"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepState(StrEnum):
    """Where one step, shard or compensation stands."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class Cause(StrEnum):
    """Why a run, step or attempt ended otherwise than well. The first one recorded on a run stays."""

    ERROR = "error"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    LOCK = "lock"
    INVALID_OUTPUT = "invalid_output"
    INVALID_FAN_OUT = "invalid_fan_out"
    HANDLER_MISSING = "handler_missing"
    ARTIFACT_MISSING = "artifact_missing"
    CHILD_FAILED = "child_failed"
    BLOCKED = "blocked"


class WaitingFor(StrEnum):
    """What a step in state ``waiting`` waits for. It holds no worker meanwhile."""

    RETRY = "retry"
    TIMER = "timer"
    APPROVAL = "approval"
    CHILDREN = "children"
    LOCK = "lock"
    TOPIC = "topic"


class StopReason(StrEnum):
    """Why nothing new may start in a run. Set once, on the run row, under its lock."""

    FAILURE = "failure"
    CANCEL = "cancel"
    DEADLINE = "deadline"


class Kind(StrEnum):
    """What a row of ``workflow_steps`` executes."""

    STEP = "step"
    COMPENSATION = "compensation"


class Undo(StrEnum):
    """How far the undo of a run has come (its ``compensation`` column); null means none was needed."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"


class NodeState(StrEnum):
    """A step of the definition within a run, one letter each in ``workflow_runs.node_states``.

    The letters stand in the order of the definition's steps, so that the next step, the progress and the list of
    what has not been reached are known from the run row alone.
    """

    PENDING = "p"
    ACTIVE = "a"
    DONE = "d"
    SKIPPED = "s"
    FAILED = "f"
    CANCELLED = "c"
    BLOCKED = "b"  # the run stopped before the step was reached


class DeadLetterState(StrEnum):
    """What became of a permanent failure."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    SETTLED = "settled"


RUN_TERMINAL = frozenset({RunState.DONE, RunState.FAILED, RunState.CANCELLED})
RUN_LIVE = frozenset(RunState) - RUN_TERMINAL
STEP_TERMINAL = frozenset(
    {StepState.DONE, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED, StepState.REJECTED}
)
STEP_LIVE = frozenset(StepState) - STEP_TERMINAL
#: Node states that let a successor start. ``failed`` is among them only by ``on_error: continue``; a node that
#: failed otherwise stops the run, so no successor ever asks.
NODE_SATISFIED = frozenset({NodeState.DONE, NodeState.SKIPPED, NodeState.FAILED})
NODE_TERMINAL = frozenset(NodeState) - {NodeState.PENDING, NodeState.ACTIVE}


def is_terminal(state: str) -> bool:
    """Whether a run, step, shard or compensation in this state is finished for good."""
    return state in _TERMINAL_WORDS


_TERMINAL_WORDS = frozenset(str(s) for s in RUN_TERMINAL | STEP_TERMINAL)
