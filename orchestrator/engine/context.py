"""What a handler is given: the run it works for, what came before, and how to say how it goes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import psycopg

from orchestrator.core.outcomes import Cancelled
from orchestrator.core.states import Kind, StepState
from orchestrator.core.text import clean
from orchestrator.engine.artifacts import StepArtifacts, artifact_store
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.outputs import read_input, read_output
from orchestrator.engine.work import Work

_LOG_LIMIT = 20_000


class Signals(Protocol):
    """How the worker tells a running handler to stop, and takes what it reports."""

    def stop_asked(self) -> str | None: ...  # noqa: D102

    def report(self, work: Work, **what: Any) -> None: ...  # noqa: D102


class StepContext:
    """``ctx`` of a handler. Reads are made when first asked for, on the engine's own connection."""

    def __init__(self, work: Work, connect: Callable[[], Connection], signals: Signals) -> None:
        self._work = work
        self._connect = connect
        self._signals = signals
        self._input: Any = None
        self._input_read = False
        self._artifacts: StepArtifacts | None = None
        self._marked: set[str] = set()
        self._deadline_ahead = 0.0  # monotonic time before which the run's deadline need not be looked at
        self.cancel_seen = False

    @property
    def run_id(self) -> str:
        """The run's id, as text."""
        return str(self._work.run_id)

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self._work.plan.workflow

    @property
    def version(self) -> int:
        """The definition version that the run is pinned to."""
        return self._work.plan.version

    @property
    def step(self) -> str:
        """Id of the step, or name of the compensation."""
        return self._work.step

    @property
    def subject_id(self) -> str:
        """What the run is about."""
        return self._work.subject_id

    @property
    def input(self) -> Any:
        """The run's input."""
        if not self._input_read:
            text = self._work.input_text
            if text is not None:
                self._input = json.loads(text)
            else:
                self._input = self._read(lambda conn: read_input(conn, self._work.run_id))
            self._input_read = True
        return self._input

    @property
    def labels(self) -> dict[str, str]:
        """The run's labels."""
        labels: dict[str, str] = json.loads(self._work.labels_text)
        return labels

    @property
    def deadline(self) -> datetime | None:
        """When the run must have ended, UTC."""
        return self._work.deadline_at

    @property
    def attempt(self) -> int:
        """1 on the first try; goes on after a retry by a person."""
        return self._work.attempt

    @property
    def shard(self) -> str:
        """The item as text where all items are unique scalars, else its index; empty without a fan-out."""
        return self._work.shard

    @property
    def item(self) -> Any:
        """The item of a fan-out; None without one."""
        return json.loads(self._work.item_text) if self._work.item_text is not None else None

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of this step or shard; a new one after it was undone."""
        w = self._work
        text = f"{w.run_id}/{w.step}/{w.shard}/{w.generation}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]

    def output(self, step: str) -> Any:
        """That step's output; of a fan-out ``{shard: output}``; None if it was skipped.

        Raises:
            KeyError: the definition has no such step.
            ArtifactMissing: an output kept by reference is gone.
        """
        node = self._work.plan.by_id.get(step)
        if node is None:
            raise KeyError(f"workflow {self.workflow} has no step {step!r}; it has {', '.join(self._work.plan.by_id)}")
        value = self._read(lambda conn: read_output(conn, self._work.run_id, step, node.is_fan_out))
        if value == {} and node.is_fan_out and node.spec.when is not None and self._skipped(step):
            return None
        return value

    def failures(self, step: str) -> dict[str, Any]:
        """``{shard: {type, message}}`` of the shards of a fan-out that failed for good."""
        query = """
            SELECT shard, error FROM workflow_steps WHERE run_id = %s AND step = %s AND state = %s ORDER BY ordinal"""
        found = self._read(lambda conn: rows(conn, query, [self._work.run_id, step, StepState.FAILED]))
        return {r.shard: {k: (r.error or {}).get(k, "") for k in ("type", "message")} for r in found}

    def _read(self, work: Callable[[Connection], Any]) -> Any:
        """Reads from the record; once more on a new connection where the old one was lost between two statements."""
        try:
            return work(self._connect())
        except (psycopg.OperationalError, psycopg.InterfaceError):
            return work(self._connect())

    def _skipped(self, step: str) -> bool:
        query = "SELECT 1 FROM workflow_steps WHERE run_id = %s AND step = %s AND shard = '' AND state = %s"
        return bool(self._read(lambda conn: rows(conn, query, [self._work.run_id, step, StepState.SKIPPED])))

    @property
    def artifacts(self) -> StepArtifacts:
        """Files of this step under deterministic keys: put, exists, open, delete, list."""
        if self._artifacts is None:
            self._artifacts = artifact_store().bind(self._work.run_id, self._work.step, self._work.shard)
        return self._artifacts

    def check_cancelled(self) -> None:
        """Stops the handler if the run was cancelled, forced or is past its deadline. Fit for a tight loop.

        Inside a compensation only force stops it.

        Raises:
            Cancelled: let it pass through.
        """
        asked = self._signals.stop_asked()
        if asked is None and self._past_deadline():
            asked = "the run is past its deadline"
        if asked is not None:
            self.cancel_seen = True
            raise Cancelled(asked)

    def _past_deadline(self) -> bool:
        """By the record's clock, never by this process's, which may be wrong or be set while the handler runs.

        The record is asked on the first call, and again when the time that it left is over: it may have been extended.
        """
        w = self._work
        if w.on_deadline != "fail" or w.deadline_at is None or time.monotonic() < self._deadline_ahead:
            return False
        query = """
            SELECT extract(epoch FROM deadline_at - clock_timestamp())::float8 AS ahead
            FROM workflow_runs WHERE id = %s"""
        try:
            found = self._read(lambda conn: rows(conn, query, [w.run_id]))
        except psycopg.Error:
            found = []  # asked again in a second; the supervisor tells of a stop by another way
        ahead = found[0].ahead if found else 1.0
        if ahead is not None and ahead <= 0:
            return True
        self._deadline_ahead = time.monotonic() + (3600.0 if ahead is None else ahead)
        return False

    def external(self, name: str) -> None:
        """Marks a call to the outside that is about to be made: for the page, the fault matrix, and the preview of a
        retry, which says what would be called again.
        """
        mark = " ".join(clean(str(name), 200).split())
        if mark and mark not in self._marked:
            self._marked.add(mark)
            self._signals.report(self._work, external=mark)

    def progress(self, fraction: float, note: str = "") -> None:
        """How far this attempt is: 0 to 1, and a few words."""
        self._signals.report(self._work, progress=min(max(float(fraction), 0.0), 1.0), note=clean(str(note), 500))

    def log(self, text: str) -> None:
        """A line for the step's page."""
        self._signals.report(self._work, log=clean(str(text), _LOG_LIMIT))


class CompensationContext(StepContext):
    """``ctx`` of a compensation: also whether what it undoes had completed, and its outcome."""

    @property
    def completed(self) -> bool:
        """Whether the step or shard that is undone had completed."""
        return self._undone_row() == StepState.DONE

    @property
    def outcome(self) -> str:
        """Final state of what is undone: ``done``, ``failed``, ``cancelled`` …; empty for an ``on_failure`` entry."""
        return self._undone_row() or ""

    def _undone_row(self) -> str | None:
        if self._work.undoes_id is None:
            return None
        query = "SELECT state FROM workflow_steps WHERE id = %s"
        found = self._read(lambda conn: rows(conn, query, [self._work.undoes_id]))
        return str(found[0].state) if found else None

    def _past_deadline(self) -> bool:
        return False

    @property
    def artifacts(self) -> StepArtifacts:
        """Files of the step that is undone, so that its compensation finds them under its own name."""
        if self._artifacts is None:
            undoes = self._work.spec.undoes if hasattr(self._work.spec, "undoes") else []
            step = undoes[0] if self._work.undoes_id and undoes else self._work.step
            self._artifacts = artifact_store().bind(self._work.run_id, step, self._work.shard)
        return self._artifacts


def make_context(work: Work, connect: Callable[[], Connection], signals: Signals) -> StepContext:
    """The context for a row, by its kind."""
    return (CompensationContext if work.kind == Kind.COMPENSATION else StepContext)(work, connect, signals)
