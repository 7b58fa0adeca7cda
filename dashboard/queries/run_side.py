"""The side of a run's page: what went wrong, what would be undone, and who did what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from dashboard import words
from dashboard.queries.run_steps import StepView
from dashboard.queries.run_tries import Tries
from dashboard.words import Look
from orchestrator.core.fingerprint import fingerprint
from orchestrator.core.mask import mask, mask_text
from orchestrator.core.states import Cause, RunState, StepState, WaitingFor
from orchestrator.engine.clock import record_now
from orchestrator.engine.explain_facts import Facts
from orchestrator.engine.explain_words import DID, at_in, clock, label_of, listed, number, span, times
from orchestrator.models import Attempt, AuditRecord, DeadLetter, Run, Step

TRAIL = 12
SIMILAR = 100
MESSAGE, TRACEBACK = 2_000, 12_000


@dataclass(frozen=True)
class Armed:
    """A compensation that waits for the run to stop, and what it would undo."""

    name: str
    undoes: str


def armed(facts: Facts, views: list[StepView]) -> list[Armed]:
    """Compensations of the steps that have started, in the order in which they would run, then ``on_failure``."""
    begun = [(at, view) for view in views if (at := view.tally.start)]
    started = [view for _, view in sorted(begun, key=itemgetter(0), reverse=True)]
    found = []
    for view in started:
        spec = view.node.spec.compensate
        if spec is not None:
            shards = f", {number(view.tally.total, 'shard')}" if view.is_fan_out else ""
            found.append(Armed(spec.name, f"undoes {view.id}{shards}"))
    if not started:
        return []
    return found + [
        Armed(spec.name, "runs after a failure or cancel") for spec in facts.plan.spec.on_failure.compensate
    ]


@dataclass
class ErrorView:
    """An error with its story. ``lines``: one for each failed attempt; ``similar``: other runs in the dead letters."""

    row: Step
    title: str
    look: Look
    why: str
    kind: str
    message: str
    traceback: str
    lines: list[str] = field(default_factory=list)
    similar: int = 0
    fingerprint: str = ""
    cut: bool = False

    @property
    def copy(self) -> str:
        """The text for the clipboard."""
        return self.traceback or f"{self.kind}: {self.message}"


def error_rows(facts: Facts) -> list[Step]:
    """Rows whose errors are shown: what holds the run up or ended it, then the first undo that failed for good."""
    at_fault = _at_fault(facts)
    rows = [at_fault] if at_fault is not None else []
    return rows + [row for row in facts.failed_undo[:1] if row.error]


def errors(facts: Facts, tries: Tries) -> list[ErrorView]:
    """The errors of :func:`error_rows`. One query, where there are any."""
    found = [_error(facts, row, tries.of(row)[::-1][:20]) for row in error_rows(facts)]
    if found:
        parts = [_alike(facts.run, error.fingerprint) for error in found]
        alike = Counter(parts[0].union(*parts[1:], all=True))
        for error in found:
            error.similar = alike[error.fingerprint]
    return found


def _alike(run: Run, sign: str) -> Any:
    """The sign once for each failure of other runs that has it, :data:`SIMILAR` and one more at most."""
    others = DeadLetter.objects.filter(fingerprint=sign, state="open").exclude(run=run)
    return others.values_list("fingerprint", flat=True)[: SIMILAR + 1]


def _at_fault(facts: Facts) -> Step | None:
    """The row whose error holds the run up, or stopped it; of a cancel or deadline there is none."""
    run = facts.run
    if run.state == RunState.RUNNING and not run.stop:
        return facts.focus if facts.focus is not None and facts.focus.error else None
    if run.state == RunState.DONE or run.cause in (Cause.CANCELLED, Cause.DEADLINE):
        return None
    row = facts.failed_row
    return row if row is not None and (row.error or run.error) else None


def _error(facts: Facts, row: Step, tries: list[Attempt]) -> ErrorView:
    error: dict[str, Any] = row.error if isinstance(row.error, dict) else facts.run.error or {}
    kind, message = str(error.get("type") or "Error"), mask_text(str(error.get("message") or ""))
    cause = row.cause or (tries[0].cause if tries else Cause.ERROR)
    retrying = row.state == StepState.WAITING and row.waiting_for == WaitingFor.RETRY
    did = DID.get(Cause(cause), "failed")
    if retrying:
        next_try = f"tries again {at_in(row.ready_at, facts.now)}" if row.ready_at else "tries again soon"
        why = f"{label_of(row)} {did} {times(row.attempt)} and {next_try}."
    else:
        why = f"{label_of(row)} {did} for good after {number(row.attempt, 'attempt')}."
    sign = fingerprint(facts.run.workflow, row.step, cause, kind, str(error.get("message") or ""))
    return ErrorView(
        row=row,
        title=f"{label_of(row)}, attempt {row.attempt} of {row.max_attempts}",
        look=words.look(row.state, "step", row.waiting_for) if retrying else words.STEP[StepState.FAILED],
        why=why,
        kind=kind,
        message=message[:MESSAGE],
        cut=len(message) > MESSAGE,
        traceback=mask_text(str(error.get("traceback") or ""))[:TRACEBACK],
        lines=[_attempt_line(a, facts.now) for a in tries[:6]],
        fingerprint=sign,
    )


def _attempt_line(attempt: Attempt, now: datetime) -> str:
    took = ""
    if attempt.started_at:
        took = f", after {span((attempt.finished_at - attempt.started_at).total_seconds())}"
    what = DID.get(Cause(attempt.cause), attempt.cause)
    return f"attempt {attempt.attempt} {what} at {clock(attempt.finished_at, now)}{took}"


@dataclass(frozen=True)
class TrailEntry:
    """One line of the trail. ``person``: somebody did it, not the engine."""

    at: datetime
    text: str
    detail: str
    person: bool


def trail(run: Run, tries: list[Attempt]) -> list[TrailEntry]:
    """The latest audit records and of the ``tries``, newest first; the submission closes the list. One query."""
    records = AuditRecord.objects.filter(run=run).order_by("-id")[: TRAIL + 1]
    # Where many shards fail, their attempts would crowd out what people did.
    shown = tries if len(tries) <= TRAIL // 2 else tries[:3]
    entries = [_record(record) for record in records] + [_attempt(attempt) for attempt in shown]
    if len(records) <= TRAIL and not any(record.action == "submit" for record in records):
        by = f" by {run.submitted_by}" if run.submitted_by else ""
        entries.append(TrailEntry(run.submitted_at, f"Run submitted{by}", "", bool(run.submitted_by)))
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:TRAIL]


def _record(record: AuditRecord) -> TrailEntry:
    after: dict[str, Any] = record.after if isinstance(record.after, dict) else {}
    person = record.actor not in ("", "engine")
    if record.action == "state":
        state, cause = after.get("state", "changed"), words.cause_words(after.get("cause"))
        return TrailEntry(record.at, f"Run {state}", f"cause: {cause}" if cause and state != "done" else "", False)
    if record.action == "submit":
        why = f"“{mask_text(record.reason)}”" if record.reason else ""
        again = f"once more, from run {after['from']}" if after.get("from") else ""
        return TrailEntry(record.at, f"Run submitted by {record.actor}", " ".join(filter(None, [again, why])), person)
    role = f" ({record.role})" if record.role else ""
    detail = f"“{mask_text(record.reason)}”" if record.reason else _changes(after)
    return TrailEntry(record.at, f"{record.actor}{role}: {record.action.replace('_', ' ')}", detail, person)


def _changes(after: dict[str, Any]) -> str:
    pairs = [f"{key} {value}" for key, value in mask(after).items() if isinstance(value, (str, int, float))]
    return listed(pairs[:3])[:200]


def _attempt(attempt: Attempt) -> TrailEntry:
    what = DID.get(Cause(attempt.cause), attempt.cause)
    retry = f"next try {clock(attempt.retry_at, record_now())}" if attempt.retry_at else ""
    text = f"{label_of(attempt.step_row)}: attempt {attempt.attempt} {what}"
    return TrailEntry(attempt.finished_at, text, retry, False)
