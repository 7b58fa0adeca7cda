"""Array parameters of the set-based statements, from what has been decided: pure conversions, one a statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from orchestrator.core.states import StepState
from orchestrator.engine.claims import Closure, End, Holder
from orchestrator.engine.edit import NewFanOut, NewStep, Opening, Remade, RunEdit

Params = dict[str, Any]
#: Columns of new rows, by the parameter that carries them.
_ROW = {"steps": "step", "shards": "shard", "ordinals": "ordinal", "states": "state", "waits": "waiting_for",
        "max_attempts": "max_attempts", "queues": "queue", "items": "item", "ready_in": "ready_in",
        "topics": "topic", "locks": "lock_name", "wait_names": "waiting_name"}  # fmt: skip


def _columns(things: Sequence[Any], **names: str) -> Params:
    """``parameter=attribute``: one array for each."""
    return {parameter: [getattr(thing, attribute) for thing in things] for parameter, attribute in names.items()}


def of_closures(closures: Sequence[Closure]) -> Params:
    """For sql/settle_steps."""
    return _columns(closures, ids="step_id", attempts="attempt", tokens="token", states="state", causes="cause",
                    delays="delay", outputs="output", refs="output_ref", errors="error")  # fmt: skip


def of_ends(ends: Sequence[End]) -> Params:
    """For sql/end_unclaimed."""
    return _columns(ends, ids="step_id", states="state", causes="cause", errors="error", outputs="output")


def of_openings(openings: Sequence[Opening], actor: str, wake: bool) -> Params:
    """For sql/submit_runs."""
    edits = [(o, o.edit) for o in openings if o.edit]
    news = [(o.id, new) for o, edit in edits for new in edit.new_steps]
    fans = [(o.id, fan_out) for o, edit in edits for fan_out in edit.fan_outs]
    tickets = [
        (o.id, step, queue, n, edit.is_gated(step)) for o, edit in edits for step, (queue, n) in edit.tickets.items()
    ]
    return {
        **_columns(openings, ids="id", subjects="subject_id", labels="labels", inputs="input", keys="key",
                   deadlines="deadline", delays="delay", run_locks="lock_name", conflicts="on_lock_conflict",
                   caps="deadline_cap", exclusive_keys="exclusive_key", helds="held"),
        # Arrays of different lengths do not go into one array of arrays: as text, read back in SQL.
        "afters": ["{" + ",".join(map(str, o.after)) + "}" if o.after else None for o in openings],
        "parent_runs": [o.parent[0] if o.parent else None for o in openings],
        "parent_steps": [o.parent[1] if o.parent else None for o in openings],
        "definitions": [o.plan.definition_id for o in openings],
        "workflows": [o.plan.workflow for o in openings],
        "versions": [o.plan.version for o in openings],
        "on_deadlines": [o.plan.spec.on_deadline for o in openings],
        "node_states": ["".join(o.edit.nodes) if o.edit else o.plan.fresh_states for o in openings],
        "pendings": [o.edit.delta if o.edit else 0 for o in openings],
        "current_steps": [(o.edit.current_step if o.edit else None) or "" for o in openings],
        "step_runs": [run for run, _ in news],
        **_columns([n for _, n in news], **_ROW),
        "fan_runs": [run for run, _ in fans],
        "fan_steps": [f.step for _, f in fans],
        "fan_totals": [len(f.items) for _, f in fans],
        "fan_windows": [f.window for _, f in fans],
        "fan_timeouts": [f.join_timeout for _, f in fans],
        "ticket_runs": [t[0] for t in tickets],
        "ticket_steps": [t[1] for t in tickets],
        "ticket_queues": [t[2] for t in tickets],
        "tickets": [t[3] for t in tickets],
        "gated": [t[4] for t in tickets],
        "actor": actor,
        "wake": wake,
    }  # fmt: skip


def of_new_steps(news: Sequence[tuple[RunEdit, NewStep]], holder: Holder | None) -> Params:
    """For sql/insert_steps."""
    return {
        "runs": [e.id for e, _ in news],
        **_columns([n for _, n in news], kinds="kind", causes="cause", errors="error", tokens="token", **_ROW),
        "attempts": [1 if n.state is StepState.RUNNING else 0 for _, n in news],
        "lease": holder.lease_id if holder else None,
        "worker": holder.worker if holder else None,
    }


def of_fan_outs(small: Sequence[tuple[UUID, NewFanOut]]) -> Params:
    """For sql/insert_fan_outs."""
    return {
        "runs": [run for run, _ in small],
        "steps": [f.step for _, f in small],
        "totals": [len(f.items) for _, f in small],
        "windows": [f.window for _, f in small],
        "join_timeouts": [f.join_timeout for _, f in small],
    }


def of_bulk(run_id: UUID, f: NewFanOut) -> Params:
    """For sql/open_fan_out."""
    return {"run": run_id, "step": f.step, "shards": f.shards, "items": f.items, "window": f.window,
            "max_attempts": f.max_attempts, "queue": f.queue, "topic": f.topic, "locks": f.locks,
            "join_timeout": f.join_timeout}  # fmt: skip


def of_remade(run_id: UUID, made: Remade) -> Params:
    """For sql/remake_fan_out; without a fan-out nothing is wanted any more."""
    f = made.fan_out or NewFanOut(made.step, [], [], 0, 1, "", False, None, [], None)
    return {"run": run_id, "step": made.step, "shards": f.shards, "items": f.items, "locks": f.locks,
            "changed": made.changed, "max_attempts": f.max_attempts, "queue": f.queue, "topic": f.topic,
            "cause": made.cause}  # fmt: skip


def of_recount(run_id: UUID, made: Remade) -> Params:
    """For sql/recount_remade."""
    return {"run": run_id, "step": made.step, "join_timeout": made.fan_out.join_timeout if made.fan_out else None}


def of_edits(edits: Sequence[RunEdit]) -> Params:
    """For sql/update_runs."""
    return {
        **_columns(edits, runs="id", deltas="delta", current_steps="current_step", states="state", causes="cause",
                   errors="error", stops="stop", compensations="compensation", outputs="output",
                   output_refs="output_ref", holds="hold"),
        "node_states": ["".join(e.nodes) for e in edits],
    }  # fmt: skip


def of_compensations(run_id: UUID, planned: list[dict[str, Any]]) -> Params:
    """For sql/insert_compensations."""
    names = {"name": "names", "shard": "shards", "wave": "waves", "retries": "retries", "queue": "queues",
             "item": "items", "undoes": "undoes"}  # fmt: skip
    params: Params = {column: [p[key] for p in planned] for key, column in names.items()}
    return {**params, "run": run_id, "undoes_steps": [json.dumps(p["undoes_steps"]) for p in planned]}
