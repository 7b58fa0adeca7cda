"""Collects the rows of one run and writes them, with counters that agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from orchestrator.core.ids import new_run_id
from orchestrator.core.states import Cause, Kind, NodeState, RunState, StepState
from orchestrator.core.states import is_terminal as terminal
from orchestrator.models import Attempt, AuditRecord, DeadLetter, FanOut, Run, Step
from tests.harness.specs import definition, lease

ERROR = {
    "type": "OSError",
    "message": "ffmpeg exited with 137: out of memory at segment 12",
    "traceback": 'Traceback (most recent call last):\n  File "handlers.py", line 41, in transcode\n'
    "    encode(segment)\nOSError: ffmpeg exited with 137: out of memory at segment 12\n",
}


class Build:
    """Collects rows of one run, then :meth:`save` derives node states, counters and the current step from them.

    ``ago`` arguments are seconds before now; ``secs`` are how long an attempt ran.
    """

    def __init__(
        self, spec: dict[str, Any] | None = None, *, subject: str = "vid-8812", ago: float = 600.0, **run: Any
    ) -> None:
        self.now = timezone.now()
        self.definition = definition(spec)
        self.spec: dict[str, Any] = self.definition.spec
        start = self.at(ago)
        seconds = float(self.spec["deadline"])
        values: dict[str, Any] = {
            "subject_id": subject,
            "submitted_at": start,
            "started_at": start,
            "updated_at": self.now,
            "deadline_seconds": seconds,
            "deadline_at": start + timedelta(seconds=seconds),
            "submitted_by": "uploads-api",
            "input": {"source": f"uploads/{subject}/source.mp4", "callback": {"token": "s3cr3t-callback"}},
            "labels": {"customer": "acme", "tier": "gold"},
            "cause": None,
            "compensation": None,
            "stop": None,
        }
        self.run = Run(
            id=new_run_id(int(start.timestamp() * 1000)),
            definition=self.definition,
            workflow=self.spec["workflow"],
            version=self.spec["version"],
            state=RunState.RUNNING,
            pending=0,
            **{**values, **run},
        )
        self.rows: list[Step] = []
        self.after_save: list[Callable[[], object]] = []

    def at(self, ago: float) -> datetime:
        """The time ``ago`` seconds before now."""
        return self.now - timedelta(seconds=ago)

    def step_of(self, step: str) -> dict[str, Any]:
        return next(s for s in self.spec["steps"] if s["id"] == step)

    def row(self, step: str, state: str, shard: str = "", **values: Any) -> Step:
        """One row of a step or shard; times and claim that the state demands are filled in."""
        spec = next((s for s in self.spec["steps"] if s["id"] == step), None) or {"queue": "default", "retries": 3}
        base: dict[str, Any] = {"queue": spec["queue"], "max_attempts": 1 + spec["retries"], "created_at": self.now}
        base |= {"kind": Kind.STEP, "attempt": 0, "ordinal": len([r for r in self.rows if r.step == step])}
        if terminal(state):
            base["finished_at"] = values.get("started_at") or self.now
        if state == StepState.RUNNING:
            base |= {"token": 7, "lease_id": 0, "started_at": self.now, "attempt": 1}
        if shard:
            base["item"] = shard
        row = Step(run=self.run, step=step, shard=shard, state=state, **{**base, **values})
        self.rows.append(row)
        return row

    def done(self, step: str, shard: str = "", *, ago: float, secs: float, **values: Any) -> Step:
        """A row that ended well on its first attempt."""
        start = self.at(ago)
        times = {"created_at": start, "ready_at": start, "first_started_at": start, "started_at": start}
        base: dict[str, Any] = {
            "finished_at": start + timedelta(seconds=secs),
            "attempt": 1,
            "worker": "media-1",
            **times,
        }
        return self.row(step, StepState.DONE, shard, **{**base, **values})

    def running(self, step: str, shard: str = "", *, ago: float, **values: Any) -> Step:
        """A row that a live worker process has claimed."""
        row = self.row(
            step,
            StepState.RUNNING,
            shard,
            started_at=self.at(ago),
            first_started_at=self.at(ago),
            created_at=self.at(ago),
            **values,
        )
        holder = lease(f"{row.queue}-1", [row.queue])
        row.lease_id, row.worker = holder.pk, holder.name
        return row

    def failed_attempts(
        self,
        row: Step,
        count: int,
        *,
        ago: float,
        secs: float = 60.0,
        cause: str = Cause.ERROR,
        error: dict[str, Any] | None = None,
    ) -> None:
        """``count`` failed tries of a row, the first ``ago`` seconds ago, 10 s apart."""
        error = error or ERROR
        row.error, row.attempt = error, max(row.attempt, count)
        row.first_started_at = self.at(ago)

        def write() -> None:
            for number in range(1, count + 1):
                start = self.at(ago - (number - 1) * (secs + 10))
                end = start + timedelta(seconds=secs)
                Attempt.objects.create(
                    run=self.run,
                    step_row=row,
                    attempt=number,
                    cause=cause,
                    error=error,
                    worker="media-heavy-1",
                    started_at=start,
                    finished_at=end,
                    retry_at=end + timedelta(seconds=10),
                )

        self.after_save.append(write)

    def dead_letter(self, row: Step, cause: str = Cause.ERROR) -> None:
        """The dead letter of a row that failed for good."""
        self.after_save.append(
            lambda: DeadLetter.objects.create(
                run=self.run,
                step_row=row,
                workflow=self.run.workflow,
                version=self.run.version,
                step=row.step,
                shard=row.shard,
                cause=cause,
                error=row.error,
                fingerprint=f"{row.step}:OSError",
                attempts=row.attempt,
            )
        )

    def audit(self, action: str, *, ago: float = 0.0, **values: Any) -> None:
        """An audit record of the run."""
        self.after_save.append(
            lambda: AuditRecord.objects.create(run=self.run, action=action, at=self.at(ago), **values)
        )

    def end(self, state: str, *, ago: float = 0.0, **values: Any) -> None:
        """The run is over; its state change is audited."""
        self.run.state, self.run.finished_at = state, self.at(ago)
        for name, value in values.items():
            setattr(self.run, name, value)
        self.audit("state", ago=ago, before={"state": "running"}, after={"state": state, "cause": self.run.cause})

    def save(self) -> Run:
        """Write everything. The run's counters and node letters follow from the rows."""
        self.run.pending = sum(not terminal(r.state) for r in self.rows)
        self.run.node_states = "".join(self._letter(s["id"]) for s in self.spec["steps"])
        begun = [r.step for r in self.rows if r.kind == Kind.STEP and r.cause != Cause.BLOCKED]
        self.run.current_step = self.run.current_step or (begun[-1] if begun else "")
        self.run.save(force_insert=True)
        for row in (r for r in self.rows if r.kind == Kind.STEP):
            row.run = self.run
        Step.objects.bulk_create([r for r in self.rows if r.kind == Kind.STEP])
        Step.objects.bulk_create([r for r in self.rows if r.kind != Kind.STEP])
        for spec in self.spec["steps"]:
            members = [r for r in self.rows if r.step == spec["id"]]
            if spec["fan_out"] and members:
                FanOut.objects.create(
                    run=self.run,
                    step=spec["id"],
                    total=len(members),
                    **self._counts(members),
                    window=spec["window"] or 1000,
                )
        for write in self.after_save:
            write()
        return self.run

    def _letter(self, step: str) -> str:
        states = [r.state for r in self.rows if r.step == step]
        if not states:
            return NodeState.PENDING
        if any(not terminal(s) for s in states):
            return NodeState.ACTIVE
        for state, letter in (
            ("failed", NodeState.FAILED),
            ("rejected", NodeState.FAILED),
            ("cancelled", NodeState.CANCELLED),
            ("done", NodeState.DONE),
        ):
            if state in states:
                return letter
        blocked = any(r.cause == Cause.BLOCKED for r in self.rows if r.step == step)
        return NodeState.BLOCKED if blocked else NodeState.SKIPPED

    @staticmethod
    def _counts(members: list[Step]) -> dict[str, int]:
        def count(*states: str) -> int:
            return sum(r.state in states for r in members)

        return {
            "open": sum(not terminal(r.state) for r in members),
            "done": count("done"),
            "skipped": count("skipped"),
            "failed": count("failed", "rejected"),
            "cancelled": count("cancelled"),
        }
