"""A claimed row as a worker holds it, and how its attempt is told to :mod:`settle` when it has ended."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.lifecycle import CANCELLED, SKIPPED, Ending, after_failure
from orchestrator.core.outcomes import Cancelled, Fail, Retry, Skip
from orchestrator.core.states import Cause, Kind
from orchestrator.core.text import clean, describe_exception
from orchestrator.definitions.spec import CompensateSpec, StepSpec
from orchestrator.engine.artifacts import ArtifactMissing
from orchestrator.engine.edit import NewStep, RunEdit
from orchestrator.engine.plans import Plan, retry_delay
from orchestrator.engine.transitions import Closure


@dataclass(slots=True)
class Work:
    """One claim: what to run, for whom, and the (id, attempt, token) that fence it. Texts are JSON."""

    id: int
    run_id: UUID
    step: str
    shard: str
    kind: Kind
    attempt: int
    max_attempts: int
    generation: int
    token: int
    item_text: str | None
    input_text: str | None
    labels_text: str
    subject_id: str
    deadline_at: datetime | None
    on_deadline: str
    undoes_id: int | None
    plan: Plan

    @property
    def spec(self) -> StepSpec | CompensateSpec:
        """What the definition says of the row."""
        return self.plan.work_spec(self.kind, self.step)

    @property
    def fence(self) -> tuple[int, int, int]:
        """(id, attempt, token)."""
        return (self.id, self.attempt, self.token)


def from_claim(row: Any, plan: Plan) -> Work:
    """Work of a row of sql/claim_steps."""
    return Work(
        row.id, row.run_id, row.step, row.shard, Kind(row.kind), row.attempt, row.max_attempts, row.generation,
        row.token, row.item_text, row.input_text, row.labels_text, row.subject_id, row.deadline_at, row.on_deadline,
        row.undoes_id, plan,
    )  # fmt: skip


def from_made(edit: RunEdit, new: NewStep, row: Any) -> Work:
    """Work of a row that was made already running, in the transaction that closed what came before it."""
    run = edit.row
    return Work(
        row.id, run.id, new.step, new.shard, new.kind, 1, new.max_attempts, 0, new.token or 0, new.item,
        run.input_text, run.labels_text, run.subject_id, run.deadline_at, run.on_deadline, None, edit.plan,
    )  # fmt: skip


def closure(work: Work, ending: Ending, **more: str | None) -> Closure:
    """How the attempt ended, with its fence."""
    return Closure(work.run_id, work.id, work.attempt, work.token, ending.state, ending.cause, ending.delay, **more)


def failure(
    work: Work, cause: Cause, error: dict[str, str], *, delay: float | None = None, permanent: bool = False
) -> Closure:
    """A failed attempt: it waits for the next try while tries are left."""
    if delay is None:
        delay = retry_delay(work.spec, work.attempt, work.max_attempts)
    ending = after_failure(cause, work.attempt, work.max_attempts, delay, permanent=permanent)
    return closure(work, ending, error=json.dumps(error, ensure_ascii=False))


def from_exception(work: Work, exc: BaseException, *, cancel_seen: bool) -> Closure:
    """What an exception of a handler makes of its attempt (CONTRACT: Retry, Fail, Skip, Cancelled, any other)."""
    if isinstance(exc, Skip):
        return closure(work, SKIPPED, error=_told(exc))
    if isinstance(exc, Cancelled) and cancel_seen:
        return closure(work, CANCELLED)
    error = describe(exc)
    if isinstance(exc, Fail):
        return failure(work, Cause.ERROR, error, permanent=True)
    if isinstance(exc, ArtifactMissing):
        return failure(work, Cause.ARTIFACT_MISSING, error)
    if isinstance(exc, Retry):
        try:
            return failure(work, Cause.ERROR, error, delay=_seconds(exc.after))
        except BadDuration as bad:
            error["message"] = clean(f"{error['message']} (raised Retry with after={exc.after!r}: {bad})")
    return failure(work, Cause.ERROR, error)


def _seconds(after: float | str | None) -> float | None:
    if after is None or (isinstance(after, (int, float)) and 0 <= after < 1e9):
        return after
    return parse_duration(after)


def _told(exc: Skip) -> str | None:
    reason = describe_exception(exc)
    return json.dumps({"type": "Skip", "message": reason}, ensure_ascii=False) if reason else None


def describe(exc: BaseException) -> dict[str, str]:
    """``{type, message, traceback}`` of an exception, always storable. The traceback starts in the handler."""
    try:
        frames = traceback.format_exception(type(exc), exc, exc.__traceback__)
        text = clean("".join(frames))
    except Exception:  # a broken __str__ breaks the traceback too
        text = "".join(traceback.format_tb(exc.__traceback__))
    return {"type": clean(type(exc).__name__, 200), "message": describe_exception(exc), "traceback": text}
