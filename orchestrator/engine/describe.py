"""A run as the API, the command line and exports show it. Secrets are masked; times are ISO 8601 in UTC."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet

from orchestrator.core.ids import no_such_run
from orchestrator.core.mask import mask, mask_error, mask_text
from orchestrator.core.states import Kind, NodeState, RunState, StepState, WaitingFor, is_terminal
from orchestrator.engine.clock import record_now
from orchestrator.engine.estimate import Estimate, at_risk, estimate, estimates
from orchestrator.engine.explain import brief, briefs, where
from orchestrator.engine.plans import Node, Plan
from orchestrator.engine.progress import progress
from orchestrator.engine.reading import plan
from orchestrator.models import Run, Step


def iso(moment: datetime | None) -> str | None:
    """``"2026-01-31T14:05:02.123456Z"``; None stays None."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None


def run_json(run_id: uuid.UUID) -> dict[str, Any]:
    """The run of CONTRACT 6 with all its steps, compensations, input and output.

    A fixed number of queries, whatever the number of shards. Steps without a row yet are listed as ``pending``, in the
    order of the definition.

    Raises:
        NotFound: there is no such run.
    """
    run = Run.objects.select_related("parent_step").filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    now, compiled = record_now(), plan(run.definition_id)
    rows = list(Step.objects.filter(run=run).order_by("ordinal", "id"))
    children: dict[int, list[str]] = defaultdict(list)
    for child, step in Run.objects.filter(parent_run=run).order_by("id").values_list("id", "parent_step"):
        children[step].append(str(child))
    holders = _holders(rows)
    made: dict[str, list[dict[str, Any]]] = defaultdict(list)
    undos: list[dict[str, Any]] = []
    names = {row.pk: row for row in rows}
    for row in rows:
        entry = _row(row, children.get(row.pk, []), holders)
        if row.kind == Kind.COMPENSATION:
            undone = names.get(row.undoes_id or 0)
            undos.append({**entry, "undoes": [undone.step] if undone else row.undoes_steps or []})
        else:
            made[row.step].append(entry)
    steps = [entry for node in compiled.nodes for entry in made.get(node.id) or [_unmade(node)]]
    found = estimate(run, now)
    return {
        **_common(run, compiled, _fan_outs(run, rows), now),
        "where": where(run, now).sentence,
        **_outlook(run, found, now),
        "current_steps": _current(run, compiled, rows),
        "input": mask(run.input),
        "output": _output(run.output, run.output_ref),
        "error": mask_error(run.error),
        "steps": steps,
        "compensations": undos,
    }


def run_item(
    run: Run, now: datetime | None = None, found: Estimate | None = None, words: str | None = None
) -> dict[str, Any]:
    """The run as it stands in a list: no payloads and no steps. For many runs use :func:`run_items`.

    ``found`` is its estimate and ``words`` its sentence where the caller has them.
    """
    now, compiled = now or record_now(), plan(run.definition_id)
    shards = {f.step: (_finished(run, f.done, f.total - f.open), f.total) for f in run.fan_outs.all()}
    return {
        **_common(run, compiled, shards, now),
        "where": brief(run, now) if words is None else words,
        **_outlook(run, found, now),
        "current_steps": _current(run, compiled, []),
    }


def for_items(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Runs read so that :func:`run_item` needs no further query."""
    return runs.select_related("parent_step").prefetch_related("fan_outs").defer("input", "output")


def run_items(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """A page of runs, with their estimates: a few queries for the page, not for each run."""
    page, now = list(runs), record_now()
    found, words = estimates(page, now), briefs(page, now)
    return [run_item(run, now, found[run.id], words[run.id]) for run in page]


def _common(run: Run, compiled: Plan, shards: dict[str, tuple[int, int]], now: datetime) -> dict[str, Any]:
    parent = run.parent_step
    return {
        "id": str(run.id),
        "workflow": run.workflow,
        "version": run.version,
        "subject_id": run.subject_id,
        "labels": mask(run.labels),
        "state": run.state,
        "cause": run.cause,
        "compensation": run.compensation,
        "progress": progress(compiled, run.state, run.node_states, shards),
        "current_step": run.current_step or None,
        "pending": run.pending,
        "overdue": not is_terminal(run.state) and run.deadline_at is not None and run.deadline_at < now,
        "idempotency_key": run.idempotency_key,
        "submitted_by": run.submitted_by,
        "submitted_at": iso(run.submitted_at),
        "available_at": iso(run.available_at),
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "deadline_at": iso(run.deadline_at),
        "updated_at": iso(run.updated_at),
        "cancel_requested_at": iso(run.cancel_requested_at),
        "hold_until": iso(run.hold_until),
        "parent": {"run_id": str(run.parent_run_id), "step": parent.step if parent else None}
        if run.parent_run_id
        else None,
    }


def _outlook(run: Run, found: Estimate | None, now: datetime) -> dict[str, Any]:
    eta = {"p50": iso(found.p50), "p90": iso(found.p90)} if found else None
    return {"eta": eta, "at_risk": at_risk(run, found, now)}


def _current(run: Run, compiled: Plan, rows: list[Step]) -> list[str]:
    """Steps under way in the order of the definition, and the compensations under way."""
    letters = zip(compiled.nodes, run.node_states, strict=False)
    steps = [node.id for node, letter in letters if letter == NodeState.ACTIVE]
    undos = [r.step for r in rows if r.kind == Kind.COMPENSATION and not is_terminal(r.state)]
    under_way = [r.step for r in rows if r.kind == Kind.COMPENSATION and r.state in ("running", "queued", "waiting")]
    return steps + list(dict.fromkeys(under_way or undos[:1]))


def _finished(run: Run, done: int, ended: int) -> int:
    """Shards that count as finished: all that ended, but in a stopped run only those that ended well."""
    return ended if run.state == RunState.RUNNING else done


def _fan_outs(run: Run, rows: list[Step]) -> dict[str, tuple[int, int]]:
    """(finished, all) shards by step."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        if row.kind == Kind.STEP and row.shard:
            counts[row.step][0] += row.state == StepState.DONE
            counts[row.step][1] += is_terminal(row.state)
            counts[row.step][2] += 1
    return {step: (_finished(run, done, ended), total) for step, (done, ended, total) in counts.items()}


def _row(row: Step, children: list[str], holders: dict[str, str]) -> dict[str, Any]:
    return {
        "id": str(row.pk),
        "step": row.step,
        "shard": row.shard,
        "kind": row.kind,
        "state": row.state,
        "cause": row.cause,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "progress": row.progress,
        "note": mask_text(row.note) if row.note else None,
        "queue": row.queue,
        "waiting_for": _waiting(row, holders),
        "worker": row.worker,
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
        "undone_at": iso(row.undone_at),
        "output": _output(row.output, row.output_ref),
        "error": mask_error(row.error),
        "children": children,
    }


def _unmade(node: Node) -> dict[str, Any]:
    empty = dict.fromkeys(("cause", "progress", "note", "waiting_for", "worker", "started_at", "finished_at"))
    empty |= dict.fromkeys(("undone_at", "output", "error"))
    base = {"id": None, "step": node.id, "shard": "", "kind": Kind.STEP.value, "state": StepState.PENDING.value}
    spec = node.spec
    return {**base, "attempt": 0, "max_attempts": 1 + spec.retries, "queue": spec.queue, **empty, "children": []}


def _waiting(row: Step, holders: dict[str, str]) -> dict[str, Any] | None:
    if row.state != StepState.WAITING:
        return None
    # For children the column holds how far their start has come, which is nobody's business.
    name = None if row.waiting_for == WaitingFor.CHILDREN else row.waiting_name
    return {"kind": row.waiting_for, "name": name, "until": iso(row.ready_at), "holder": holders.get(name or "")}


def _holders(rows: list[Step]) -> dict[str, str]:
    """Run ids that hold the locks which some row waits for. One query when there is such a row."""
    names = {r.waiting_name for r in rows if r.waiting_for == WaitingFor.LOCK and r.waiting_name}
    if not names:
        return {}
    held = Step.objects.filter(lock_name__in=names, state=StepState.RUNNING).values_list("lock_name", "run_id")
    return {name: str(run_id) for name, run_id in held if name}


def _output(value: Any, ref: str | None) -> Any:
    """The output, or where the artifact lies that holds it."""
    return {"artifact": ref} if ref else mask(value)
