"""State -> word, glyph and colour: the one place that says how a state looks. It is never shown by colour alone."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.bulk import BulkState, ItemState, Outcome
from orchestrator.core.states import Cause, DeadLetterState, RunState, StepState, Undo, WaitingFor


@dataclass(frozen=True)
class Look:
    """How one state is shown. ``glyph`` is a symbol of the sprite, ``tone`` a colour class without its ``s-``."""

    word: str
    glyph: str
    tone: str

    @property
    def css(self) -> str:
        """Class of ink (and of the soft background inside a badge)."""
        return f"s-{self.tone}"

    @property
    def fill(self) -> str:
        """Class of a bar in a drawing."""
        return f"f-{self.tone}"


UNKNOWN = Look("Unknown", "s-idle", "idle")

RUN: dict[str, Look] = {
    RunState.RUNNING: Look("Running", "s-run", "run"),
    RunState.COMPENSATING: Look("Compensating", "s-comp", "comp"),
    RunState.DONE: Look("Done", "s-ok", "ok"),
    RunState.FAILED: Look("Failed", "s-fail", "fail"),
    RunState.CANCELLED: Look("Cancelled", "s-stop", "idle"),
}

STEP: dict[str, Look] = {
    StepState.PENDING: Look("Pending", "s-idle", "idle"),
    StepState.QUEUED: Look("Queued", "s-idle", "idle"),
    StepState.RUNNING: Look("Running", "s-run", "run"),
    StepState.WAITING: Look("Waiting", "s-wait", "idle"),
    StepState.DONE: Look("Done", "s-ok", "ok"),
    StepState.FAILED: Look("Failed", "s-fail", "fail"),
    StepState.SKIPPED: Look("Skipped", "s-stop", "idle"),
    StepState.CANCELLED: Look("Cancelled", "s-stop", "idle"),
    StepState.REJECTED: Look("Rejected", "s-fail", "fail"),
}

WAITING: dict[str, Look] = {
    WaitingFor.RETRY: Look("Retrying", "s-retry", "retry"),
    WaitingFor.TIMER: Look("Waiting for a timer", "s-wait", "idle"),
    WaitingFor.APPROVAL: Look("Waiting for approval", "s-wait", "idle"),
    WaitingFor.CHILDREN: Look("Waiting for child runs", "s-wait", "idle"),
    WaitingFor.LOCK: Look("Waiting for a lock", "s-wait", "idle"),
    WaitingFor.TOPIC: Look("Waiting for a topic", "s-wait", "idle"),
}

DEAD_LETTER: dict[str, Look] = {
    DeadLetterState.OPEN: Look("Open", "s-dead", "fail"),
    DeadLetterState.REPLAYED: Look("Replayed", "s-retry", "idle"),
    DeadLetterState.DISCARDED: Look("Discarded", "s-stop", "idle"),
    DeadLetterState.SETTLED: Look("Settled", "s-ok", "ok"),
}

UNDO: dict[str, Look] = {
    Undo.PENDING: Look("Undo to come", "s-armed", "comp"),
    Undo.RUNNING: Look("Undoing", "s-comp", "comp"),
    Undo.DONE: Look("Undone", "s-comp", "comp"),
    Undo.PARTIAL: Look("Undo incomplete", "s-fail", "fail"),
}

#: Marks that stand beside a state, and health of the machinery.
MARK: dict[str, Look] = {
    "overdue": Look("Overdue", "s-late", "late"),
    "at_risk": Look("At risk", "s-risk", "late"),
    "undone": Look("Undone", "s-comp", "comp"),
    "armed": Look("Armed", "s-armed", "comp"),
    "dead": Look("Dead letter", "s-dead", "fail"),
    "delayed": Look("Delayed", "s-wait", "idle"),
    "ok": Look("Up", "s-ok", "ok"),
    "down": Look("Down", "s-fail", "fail"),
    "late": Look("Late", "s-late", "late"),
    "unknown": UNKNOWN,
    "idle": Look("Idle", "s-ok", "ok"),
    "busy": Look("Busy", "s-run", "run"),
    "lost": Look("Lost", "s-fail", "fail"),
    "ended": Look("Ended", "s-stop", "idle"),
    "paused": Look("Paused", "s-wait", "late"),
}

#: Bulk operations, and what became of each of their set.
BULK: dict[str, Look] = {
    BulkState.RUNNING: Look("Running", "s-run", "run"),
    BulkState.PAUSED: Look("Paused", "s-wait", "late"),
    BulkState.STOPPED: Look("Stopped", "s-stop", "idle"),
    BulkState.DONE: Look("Done", "s-ok", "ok"),
}
BULK_ITEM: dict[str, Look] = {
    ItemState.PENDING: Look("To do", "s-idle", "idle"),
    ItemState.DONE: Look("Done", "s-ok", "ok"),
    ItemState.SKIPPED: Look("Skipped", "s-stop", "idle"),
    ItemState.FAILED: Look("Not done", "s-fail", "fail"),
    Outcome.FAILED_AGAIN: Look("Failed again", "s-fail", "fail"),
}

TABLES = {"run": RUN, "step": STEP, "waiting": WAITING, "dead_letter": DEAD_LETTER, "undo": UNDO, "mark": MARK,
          "bulk": BULK, "bulk_item": BULK_ITEM}  # fmt: skip

CAUSE: dict[str, str] = {
    Cause.ERROR: "an error",
    Cause.TIMEOUT: "a timeout",
    Cause.WORKER_LOST: "a lost worker",
    Cause.DEADLINE: "the deadline",
    Cause.CANCELLED: "a cancel",
    Cause.LOCK: "a lock",
    Cause.INVALID_OUTPUT: "an output that is not JSON",
    Cause.INVALID_FAN_OUT: "a fan-out that is not a list",
    Cause.HANDLER_MISSING: "a missing handler",
    Cause.ARTIFACT_MISSING: "a missing artifact",
    Cause.CHILD_FAILED: "a failed child run",
    Cause.BLOCKED: "a step before it",
}


def look(state: str | None, kind: str = "run", waiting_for: str | None = None) -> Look:
    """The look of a state. ``kind``: run, step, waiting, dead_letter, undo or mark. A waiting step says for what."""
    if waiting_for and state == StepState.WAITING:
        return WAITING.get(waiting_for, UNKNOWN)
    return TABLES.get(kind, RUN).get(state or "", UNKNOWN)


def cause_words(cause: str | None) -> str:
    """A cause for the middle of a sentence: ``"a timeout"``; empty for none."""
    return CAUSE.get(cause, cause) if cause else ""
