"""One step of a run in full: what went in, what came out, every attempt."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dashboard.queries.run_steps import RowView, StepView
from dashboard.queries.run_tries import Tries
from orchestrator.core.actor import Actor, allows
from orchestrator.core.mask import mask, mask_error, mask_text
from orchestrator.core.states import Kind, StepState, WaitingFor
from orchestrator.engine.explain_facts import Facts
from orchestrator.engine.explain_words import at_in
from orchestrator.engine.operate_steps import can_be_skipped, may_answer
from orchestrator.models import Lease, Step

#: Characters of JSON that the page shows of one value.
PREVIEW = 4_000
#: Outputs of a fan-out before this step that are shown.
OUTPUTS = 10


@dataclass(frozen=True)
class Preview:
    """JSON on several lines, cut to :data:`PREVIEW`; ``size`` is its whole length in characters."""

    text: str
    size: int
    ref: str = ""

    @property
    def cut(self) -> bool:
        """Whether something was left out."""
        return self.size > len(self.text)


@dataclass(frozen=True)
class Try:
    """One attempt that failed."""

    number: int
    cause: str
    error: dict[str, str] | None
    traceback: str
    attempt: Any


@dataclass
class Panel:
    """A step, or one shard of it, opened. ``inputs``: (title, preview)."""

    view: StepView
    row: RowView | None
    inputs: list[tuple[str, Preview]] = field(default_factory=list)
    output: Preview | None = None
    tries: list[Try] = field(default_factory=list)
    note: str = ""
    log: str = ""
    error: dict[str, str] | None = None
    may_answer: bool = False
    may_skip: bool = False
    #: When the worker that runs it was heard of last.
    heartbeat: datetime | None = None

    @property
    def name(self) -> str:
        """The step, with its shard where it has one."""
        return f"{self.shard[:40]} of {self.view.id}" if self.shard else self.view.id

    @property
    def attempts(self) -> str:
        """How the tries went, such as: 2 failed, try 3 of 5 at 14:15."""
        if self.row is None or not self.row.row.attempt:
            return ""
        row, failed = self.row.row, self.row.failures
        if not failed:
            return f"attempt {row.attempt} of {row.max_attempts}"
        if row.waiting_for == WaitingFor.RETRY:
            when = f" {at_in(row.ready_at, self.row.now)}" if row.ready_at else ""
            return f"{failed:,} failed, try {row.attempt + 1} of {row.max_attempts}{when}"
        if failed >= row.attempt:
            return f"{failed:,} failed of {row.max_attempts}"
        how = "is running" if row.state == StepState.RUNNING else row.state
        return f"{failed:,} failed, try {row.attempt} of {row.max_attempts} {how}"

    @property
    def shard(self) -> str:
        """The shard that is shown, or empty."""
        return self.row.row.shard if self.row else ""


def preview(value: Any, ref: str | None = None) -> Preview:
    """The value as JSON with secrets masked, or the place of the artifact that holds it."""
    if ref:
        return Preview("", 0, ref)
    text = json.dumps(mask(value), indent=2, ensure_ascii=False, default=str)
    return Preview(text[:PREVIEW], len(text))


def panel(facts: Facts, views: list[StepView], step: str, shard: str, actor: Actor, known: Tries) -> Panel | None:
    """The step opened; of a fan-out the shard asked for, else the first that is shown. None: no such step.

    What ``actor`` may decide about it is offered; the engine checks again.
    """
    view = next((v for v in views if v.id == step), None)
    if view is None:
        return None
    row, outputs = _read(facts, view, shard)
    inputs = _inputs(facts, view, row, outputs)
    if row is None:
        return Panel(view, None, inputs=inputs)
    tries = known.of(row)
    return Panel(
        view,
        RowView(row, tries, facts.now),
        inputs=inputs,
        output=preview(row.output, row.output_ref) if row.state == StepState.DONE else None,
        tries=[_try(a) for a in reversed(tries[-10:])],
        note=mask_text(row.note) if row.note else "",
        log=mask_text(row.log)[-PREVIEW:] if row.log else "",
        error=mask_error(row.error),
        may_answer=not facts.run.stop
        and row.waiting_for == WaitingFor.APPROVAL
        and may_answer(actor, row.waiting_name),
        heartbeat=_heartbeat(row),
        may_skip=not facts.run.stop and can_be_skipped(row.kind, row.state) and allows(actor.role, "operator"),
    )


def _heartbeat(row: Step) -> datetime | None:
    """One query, for a row that runs."""
    if row.state != StepState.RUNNING or row.lease_id is None:
        return None
    return Lease.objects.filter(pk=row.lease_id).values_list("heartbeat_at", flat=True).first()


def _try(attempt: Any) -> Try:
    error = attempt.error if isinstance(attempt.error, dict) else {}
    text = mask_text(str(error.get("traceback") or ""))[:6_000]
    return Try(attempt.attempt, attempt.cause, mask_error(attempt.error), text, attempt)


def _read(facts: Facts, view: StepView, shard: str) -> tuple[Step | None, dict[str, list[Step]]]:
    """The row asked for, else the first that is shown; and the outputs of the steps before. One query."""
    rows = Step.objects.filter(run=facts.run, kind=Kind.STEP)
    before = list(view.node.spec.after)
    wanted = rows.filter(step=view.id, shard=shard) if shard or not view.rows else rows.none()
    first = rows.filter(pk=view.rows[0].row.pk) if view.rows else rows.none()
    made = rows.filter(step__in=before, state=StepState.DONE).order_by("step", "ordinal")[: OUTPUTS * len(before)]
    found = list(wanted[:1].union(first[:1], *([made] if before else []), all=True))
    own = [row for row in found if row.step == view.id]
    outputs: dict[str, list[Step]] = defaultdict(list)
    for row in found:
        if row.step != view.id:
            outputs[row.step].append(row)
    return (own[0] if own else None), outputs


def _inputs(
    facts: Facts, view: StepView, row: Step | None, outputs: dict[str, list[Step]]
) -> list[tuple[str, Preview]]:
    """The item of the shard, the outputs of the steps before, the input of the run."""
    found = []
    if row is not None and row.item is not None and view.node.is_fan_out:
        found.append(("item", preview(row.item)))
    for step in view.node.spec.after:
        made = outputs.get(step, [])
        if len(made) == 1 and not made[0].shard:
            found.append((f"output of {step}", preview(made[0].output, made[0].output_ref)))
        elif made:
            value = {r.shard: {"artifact": r.output_ref} if r.output_ref else r.output for r in made[:OUTPUTS]}
            total = facts.steps[step].states[StepState.DONE]
            more = f", {len(value)} of {total:,} shards" if total > len(value) else ""
            found.append((f"output of {step}{more}", preview(value)))
    found.append(("input of the run", preview(facts.run.input)))
    return found
