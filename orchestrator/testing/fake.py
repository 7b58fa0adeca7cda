"""Tests of handlers without database, Redis or workers.

``fake_context`` stands in for the ``ctx`` that workers pass. It keeps artifacts in memory, answers outputs of other
steps from what the test gives it, and records what the handler said::

    ctx = fake_context(step="transcode", shard="720p", outputs={"probe": {"seconds": 5}}, input={"source": key})
    assert transcode(ctx)["height"] == 720
    assert ctx.externals == ["store rendition"]

Contexts that share ``store`` and ``run_id`` see each other's artifacts, like steps of one run; :meth:`FakeContext.then`
makes the next one. A step's own compensation gets the artifacts of the step that it undoes, so name that step here.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.core.ids import new_run_id
from orchestrator.core.outcomes import Cancelled
from orchestrator.core.text import to_json
from orchestrator.engine.artifact_storage import MemoryStorage
from orchestrator.engine.artifacts import ArtifactStore, StepArtifacts


@dataclass
class FakeContext:
    """What a handler gets, for tests. Fields up to ``cancel_after`` are set by the test, the rest is recorded."""

    run_id: str
    workflow: str
    version: int
    subject_id: str
    input: Any
    step: str
    shard: str
    item: Any
    attempt: int
    deadline: datetime
    outputs: dict[str, Any]
    failed: dict[str, dict[str, Any]]
    generation: int
    completed: bool
    outcome: str
    labels: dict[str, str]
    store: ArtifactStore
    cancel_after: int | None
    checks: int = 0
    externals: list[str] = field(default_factory=list)
    reports: list[tuple[float, str]] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of this shard; another ``generation`` (after an undo) has another."""
        return f"{self.run_id}:{self.step}:{self.shard}:{self.generation}"

    @property
    def artifacts(self) -> StepArtifacts:
        """Artifacts as this step and shard see them."""
        return self.store.bind(self.run_id, self.step, self.shard)

    def output(self, step: str) -> Any:
        """The output given for ``step``; of a fan-out ``{shard: output}``; ``None`` if it was skipped.

        Raises:
            KeyError: if the test gave none: a real run has one for every step that comes before.
        """
        if step not in self.outputs:
            raise KeyError(
                f"fake_context has no output of {step!r}; pass outputs={{{step!r}: …}}, None for a skipped step"
            )
        return self.outputs[step]

    def failures(self, step: str) -> dict[str, Any]:
        """``{shard: error}`` given for ``step``."""
        return dict(self.failed.get(step, {}))

    def check_cancelled(self) -> None:
        """Raises :class:`Cancelled` from the call after ``cancel_after`` on; ``0`` is the first."""
        self.checks += 1
        if self.cancel_after is not None and self.checks > self.cancel_after:
            raise Cancelled("the test cancelled this run")

    def external(self, name: str) -> None:
        """Recorded in ``externals``."""
        self.externals.append(name)

    def progress(self, share: float, note: str = "") -> None:
        """Recorded in ``reports``, within 0 and 1 as the engine keeps it."""
        self.reports.append((min(max(float(share), 0.0), 1.0), note))

    def log(self, text: str) -> None:
        """Recorded in ``logs``."""
        self.logs.append(text)

    def then(self, step: str, shard: str = "", **changes: Any) -> FakeContext:
        """A context of another step (or attempt, or compensation) of the same run, with nothing recorded yet."""
        fresh: dict[str, Any] = {
            "checks": 0,
            "externals": [],
            "reports": [],
            "logs": [],
            "attempt": 1,
            "item": shard or None,
        }
        return dataclasses.replace(self, **(fresh | {"step": step, "shard": shard, "cancel_after": None} | changes))

    def done(self, output: Any) -> None:
        """Keeps ``output`` as this step's own for those after it, and checks that it is JSON as the engine does.

        Raises:
            orchestrator.core.text.NotStorable: if it is not.
        """
        to_json(output, f"the output of {self.step}")
        if self.shard:
            self.outputs.setdefault(self.step, {})[self.shard] = output
        else:
            self.outputs[self.step] = output


def fake_context(
    *,
    step: str = "step",
    shard: str = "",
    item: Any = None,
    input: Any = None,  # noqa: A002 - the word that handlers read
    outputs: Mapping[str, Any] | None = None,
    failures: Mapping[str, dict[str, Any]] | None = None,
    workflow: str = "workflow",
    version: int = 1,
    subject_id: str = "subject-1",
    run_id: uuid.UUID | str | None = None,
    attempt: int = 1,
    generation: int = 0,
    deadline: datetime | None = None,
    completed: bool = True,
    outcome: str = "done",
    labels: Mapping[str, str] | None = None,
    cancel_after: int | None = None,
    store: ArtifactStore | None = None,
) -> FakeContext:
    """A context to call one handler with.

    Args:
        item: what the shard stands for; by default ``shard`` itself, ``None`` without one.
        outputs: of steps before this one, by step; of a fan-out ``{shard: output}``.
        failures: of steps before this one, by step and shard.
        generation: how often the step was undone and made ready again.
        completed, outcome: what a compensation is told of the step it undoes.
        cancel_after: how many calls of ``check_cancelled`` pass before they raise; ``None`` never.
        store: where artifacts lie; by default a fresh one in memory.
    """
    return FakeContext(
        run_id=str(run_id or new_run_id()),
        workflow=workflow,
        version=version,
        subject_id=subject_id,
        input={} if input is None else input,
        step=step,
        shard=shard,
        item=(shard or None) if item is None else item,
        attempt=attempt,
        deadline=deadline or datetime.now(UTC) + timedelta(hours=1),
        outputs=dict(outputs or {}),
        failed=dict(failures or {}),
        generation=generation,
        completed=completed,
        outcome=outcome,
        labels=dict(labels or {}),
        store=store or ArtifactStore(MemoryStorage()),
        cancel_after=cancel_after,
    )
