"""Where runs stand, in a few words each, for lists. A fixed number of small queries for a whole page of runs."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from django.db.models import Q

from orchestrator.core.states import NodeState, RunState, StepState, StopReason, WaitingFor
from orchestrator.engine.clock import record_now
from orchestrator.engine.explain_words import at_in, clock, did, error_text, label, listed, number, span
from orchestrator.engine.plans import Node
from orchestrator.engine.reading import plans
from orchestrator.models import FanOut, Run, Step

#: Shards of a fan-out up to this size are looked at one by one; of a larger one only its counters.
SMALL = 200
_LIGHT = ("run_id", "step", "shard", "state", "waiting_for", "waiting_name", "attempt", "max_attempts", "queue",
          "ready_at", "started_at", "created_at")  # fmt: skip


def brief(run: Run, now: datetime | None = None) -> str:
    """Where one run stands, without a full stop: ``"Transcode, 2 of 3 shards"``."""
    return briefs([run], now)[run.id]


def briefs(runs: Sequence[Run], now: datetime | None = None) -> dict[uuid.UUID, str]:
    """The same of many runs, by id. Reads two tables once each, through their keys."""
    now = now or record_now()
    live = [run for run in runs if run.state == RunState.RUNNING]
    known = plans(run.definition_id for run in live)
    active = {run.id: _active(run, known[run.definition_id].nodes) for run in live}
    rows, fans = _rows(active)
    return {run.id: _phrase(run, active.get(run.id, []), rows[run.id], fans[run.id], now) for run in runs}


def _active(run: Run, nodes: Sequence[Node]) -> list[Node]:
    return [node for node, letter in zip(nodes, run.node_states, strict=False) if letter == NodeState.ACTIVE]


Rows = dict[uuid.UUID, dict[str, list[Step]]]
Fans = dict[uuid.UUID, dict[str, FanOut]]


def _rows(active: dict[uuid.UUID, list[Node]]) -> tuple[Rows, Fans]:
    """Open rows of plain steps and of small fan-outs, and the counters of all fan-outs."""
    plain = {node.id for nodes in active.values() for node in nodes if not node.is_fan_out}
    wide = {node.id for nodes in active.values() for node in nodes if node.is_fan_out}
    fans: Fans = defaultdict(dict)
    if wide:
        for fan in FanOut.objects.filter(run_id__in=active, step__in=wide):
            fans[fan.run_id][fan.step] = fan
    wanted = Q(run_id__in=active, step__in=plain, shard="")
    small = [fan for found in fans.values() for fan in found.values() if fan.total <= SMALL]
    if small:
        wanted |= Q(run_id__in={fan.run_id for fan in small}, step__in={fan.step for fan in small},
                    state__in=[StepState.WAITING, StepState.RUNNING])  # fmt: skip
    rows: Rows = defaultdict(lambda: defaultdict(list))
    if plain or small:
        for row in Step.objects.filter(wanted).only(*_LIGHT, "error").order_by("id")[: 50 * SMALL]:
            rows[row.run_id][row.step].append(row)
    return rows, fans


def _phrase(run: Run, active: list[Node], rows: dict[str, list[Step]], fans: dict[str, FanOut], now: datetime) -> str:
    if run.state != RunState.RUNNING:
        return _not_running(run, now)
    if run.stop:
        why = {StopReason.CANCEL: "Being cancelled", StopReason.DEADLINE: "Past its deadline"}
        return f"{why.get(StopReason(run.stop), 'Stopping')}, waits for {number(run.pending, 'row')} to end"
    if run.started_at is None and run.available_at and run.available_at > now:
        return f"Starts {at_in(run.available_at, now)}"
    said = [_node(node, rows.get(node.id, []), fans.get(node.id), now) for node in active]
    if not said:
        return f"At {run.current_step}" if run.current_step else "Not started"
    return said[0] if len(said) == 1 else f"{said[0]}; also at {listed([node.id for node in active[1:]], 2)}"


def _node(node: Node, rows: list[Step], fan: FanOut | None, now: datetime) -> str:
    trouble = next((row for row in rows if row.waiting_for == WaitingFor.RETRY), None)
    if fan is None:
        return _row(rows[0], now) if rows else node.id
    text = f"{node.id}, {fan.total - fan.open:,} of {number(fan.total, 'shard')}"
    if trouble is not None:
        return f"{text}; {_row(trouble, now, trouble.shard)}"
    bad = fan.failed
    return f"{text}, {number(bad, 'failed', 'failed')}" if bad else text


def _row(row: Step, now: datetime, name: str | None = None) -> str:
    name = name or label(row.step, row.shard)
    match row.state, row.waiting_for:
        case StepState.WAITING, WaitingFor.RETRY:
            next_try = _next_try(row.ready_at, now)
            return f"{name} failed {row.attempt} of {number(row.max_attempts, 'time')}{next_try}"
        case StepState.WAITING, WaitingFor.APPROVAL:
            by = row.waiting_name or "an admin"
            return f"{name} waits for approval by {by} since {clock(row.created_at, now)}"
        case StepState.WAITING, WaitingFor.TIMER:
            return f"{name} waits until {clock(row.ready_at, now)}" if row.ready_at else f"{name} waits"
        case StepState.WAITING, WaitingFor.CHILDREN:
            return f"{name} waits for its child runs"
        case StepState.WAITING, waits:
            return f"{name} waits for the {waits} {row.waiting_name or ''}".rstrip()
        case StepState.QUEUED, _:
            return f"{name} queued on {row.queue} for {_age(row.ready_at or row.created_at, now)}"
        case StepState.RUNNING, _:
            tries = f", attempt {row.attempt} of {row.max_attempts}" if row.attempt > 1 else ""
            return f"{name} running for {_age(row.started_at or now, now)}{tries}"
    return name


def _next_try(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    return f", next try {clock(moment, now)}" if moment > now else ", next try now"


def _age(moment: datetime, now: datetime) -> str:
    return span((now - moment).total_seconds())


def _not_running(run: Run, now: datetime) -> str:
    if run.state == RunState.COMPENSATING:
        if run.hold_until and run.hold_until > now:
            return f"Holds until {clock(run.hold_until, now)} before it undoes"
        return f"Undoing, {number(run.pending, 'step')} to go"
    if run.state == RunState.DONE:
        took = f" in {_age(run.submitted_at, run.finished_at)}" if run.finished_at else ""
        return f"Done{took}"
    error = run.error if isinstance(run.error, dict) else {}
    step = str(error.get("step") or run.current_step)
    if run.state == RunState.CANCELLED:
        return f"Cancelled at {step}" if step else "Cancelled before it began"
    what = did(run.cause)
    text = error_text(error, 90)
    where = label(step, error.get("shard")) if step else "It"
    return f"{where} {what}: {text}" if text else f"{where} {what}"
