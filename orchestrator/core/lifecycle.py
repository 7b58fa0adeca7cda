"""Legal moves, and what an attempt that ended becomes. Pure: the engine asks, the statements guard."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.states import Cause, RunState, StepState

RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset({RunState.COMPENSATING, RunState.DONE, RunState.FAILED, RunState.CANCELLED}),
    RunState.COMPENSATING: frozenset({RunState.FAILED, RunState.CANCELLED, RunState.RUNNING}),
    RunState.DONE: frozenset(),
    # Only an audited retry, or the replay of an undo, leaves a terminal state.
    RunState.FAILED: frozenset({RunState.RUNNING, RunState.COMPENSATING}),
    RunState.CANCELLED: frozenset({RunState.RUNNING, RunState.COMPENSATING}),
}

STEP_MOVES: dict[StepState, frozenset[StepState]] = {
    StepState.PENDING: frozenset({StepState.QUEUED, StepState.SKIPPED, StepState.CANCELLED}),
    StepState.QUEUED: frozenset({StepState.RUNNING, StepState.SKIPPED, StepState.CANCELLED, StepState.REJECTED}),
    StepState.RUNNING: frozenset(StepState) - {StepState.PENDING},
    StepState.WAITING: frozenset(StepState) - {StepState.PENDING, StepState.RUNNING},
    StepState.DONE: frozenset({StepState.PENDING}),
    StepState.FAILED: frozenset({StepState.PENDING}),
    StepState.SKIPPED: frozenset({StepState.PENDING}),
    StepState.CANCELLED: frozenset({StepState.PENDING}),
    StepState.REJECTED: frozenset({StepState.PENDING}),
}


def run_may(old: str, new: str) -> bool:
    """Whether a run may go from one state to the other."""
    return RunState(new) in RUN_MOVES[RunState(old)]


def step_may(old: str, new: str) -> bool:
    """Whether a step, shard or compensation may go from one state to the other."""
    return StepState(new) in STEP_MOVES[StepState(old)]


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of an attempt: the next state, its cause, and after how many seconds it is tried again."""

    state: StepState
    cause: Cause | None = None
    delay: float | None = None


DONE = Ending(StepState.DONE)
SKIPPED = Ending(StepState.SKIPPED)
CANCELLED = Ending(StepState.CANCELLED, Cause.CANCELLED)


def after_failure(cause: Cause, attempt: int, max_attempts: int, delay: float, *, permanent: bool = False) -> Ending:
    """A failed attempt waits for its next try while tries are left, and fails for good otherwise.

    A lost worker is tried again at once (the fault was not the handler's pace); crashes count as attempts all the same,
    so that a job that kills its worker ends.
    """
    if permanent or attempt >= max_attempts:
        return Ending(StepState.FAILED, cause)
    return Ending(StepState.WAITING, cause, 0.0 if cause is Cause.WORKER_LOST else max(0.0, delay))
