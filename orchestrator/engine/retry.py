"""What a retry runs again, and opening it. Called under the run's lock by ``operate``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core.errors import Invalid
from orchestrator.core.states import Cause, NodeState, StepState
from orchestrator.definitions.spec import StepSpec
from orchestrator.engine import transitions
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.exclusive import exclude_again
from orchestrator.engine.plans import Node, Plan


@dataclass(frozen=True)
class RetryItem:
    """A step or shard that runs again: why (failed, cancelled, blocked, undone, chosen, or
    decided again: it was skipped by what a step said that runs again), and as which attempt.

    ``side_effects``: calls that earlier attempts marked with ``ctx.external``; they would be made again.
    """

    step: str
    shard: str
    why: str
    attempt: int
    side_effects: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RetryPreview:
    """``steps`` run again; ``kept`` ids of steps of which at least a part keeps its result.

    ``side_effects``: how many of the steps would make each call to the outside again, by the name they gave it.
    """

    steps: list[RetryItem]
    kept: list[str]
    side_effects: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """Rows to be made pending again, nodes to be opened again, and rows that never started, to be made anew."""

    reset: list[int]
    unmade: list[int]
    nodes: set[int]
    items: list[RetryItem]
    kept: list[str]


def choose(conn: Connection, run: Any, plan: Plan, from_step: str | None, only: list[int] | None) -> Chosen:
    """What a retry of a stopped run runs again.

    Raises:
        Invalid: ``from_step`` names no step of the definition.
    """
    wanted = _from(plan, from_step)
    behind: set[int] = set()
    query = """
        SELECT id, step, shard, state, cause, attempt, undone_at, first_started_at FROM workflow_steps
        WHERE run_id = %s AND kind = 'step' ORDER BY id"""
    reset: list[int] = []
    unmade: list[int] = []
    nodes: set[int] = set()
    items: list[RetryItem] = []
    kept: list[str] = []
    found = rows(conn, query, [run.id])
    for step in {row.step for row in found if only is not None and row.id in only}:
        behind |= plan.descendants(step) - {plan.by_id[step].index}
    for row in found:
        node = plan.by_id[row.step]
        why = "chosen" if node.index in wanted else _why(row, only if node.index not in behind else None)
        if why is None:
            if row.step not in kept and row.state in (StepState.DONE, StepState.SKIPPED):
                kept.append(row.step)
            continue
        nodes.add(node.index)
        items.append(RetryItem(row.step, row.shard, why, row.attempt + 1))
        # A row with a child run stays: the run and its undo name it. Anything else that never began is made anew.
        has_child = node.spec.workflow is not None and row.state in _HAD_A_CHILD
        (unmade if not row.shard and not row.attempt and not has_child else reset).append(row.id)
    for node in plan.nodes:
        if run.node_states[node.index] in (NodeState.PENDING, NodeState.BLOCKED) and node.index not in nodes:
            nodes.add(node.index)
            items.append(RetryItem(node.id, "", "blocked", 1))
    for node, row in _decided_again(plan, found, nodes):
        nodes.add(node.index)
        items.append(RetryItem(node.id, "", "decided again", 1))
        unmade.append(row.id)
        kept.remove(node.id)
    return Chosen(reset, unmade, nodes, items, kept)


def _decided_again(plan: Plan, found: list[Any], nodes: set[int]) -> Iterator[tuple[Node, Any]]:
    """Steps that a condition or an empty list had skipped, where the step that told so runs again."""
    skipped = {
        row.step: row
        for row in found
        if row.state == StepState.SKIPPED and row.cause is None and not row.attempt and not row.shard
    }
    again = {plan.nodes[i].id for i in nodes}
    for _ in skipped:  # one may hang on another
        for name in [name for name in skipped if name not in again and _told_by(plan.by_id[name].spec) & again]:
            again.add(name)
            yield plan.by_id[name], skipped[name]


def _told_by(spec: StepSpec) -> set[str]:
    """Steps whose outputs decide whether the step runs and over what."""
    told = {spec.when} | ({spec.fan_out.source} if spec.fan_out else set())
    return {path.split(".")[0] for path in told if path}


def _from(plan: Plan, from_step: str | None) -> set[int]:
    if from_step is None:
        return set()
    if from_step == "*":
        return {node.index for node in plan.nodes}
    if from_step not in plan.by_id:
        raise Invalid(
            f"workflow {plan.workflow} v{plan.version} has no step {from_step!r}; it has {', '.join(plan.by_id)}",
            field="from_step",
        )
    return plan.descendants(from_step)


_HAD_A_CHILD = (StepState.DONE, StepState.FAILED, StepState.CANCELLED)
_ENDED_BADLY = {StepState.FAILED: "failed", StepState.REJECTED: "failed", StepState.CANCELLED: "cancelled"}


def _why(row: Any, only: list[int] | None) -> str | None:
    if row.undone_at is not None:
        # Undone or not, what failed is said to have failed.
        return _ENDED_BADLY.get(row.state, "undone")
    if row.state in (StepState.FAILED, StepState.REJECTED):
        return "failed" if only is None or row.id in only else None
    if row.state == StepState.CANCELLED:
        return "cancelled"
    if row.state == StepState.SKIPPED and row.cause == Cause.BLOCKED:
        return "blocked"
    return None


def reopen(conn: Connection, run: Any, plan: Plan, chosen: Chosen) -> RunEdit:
    """Makes the run running again, with the chosen rows pending; the caller lets it advance."""
    nodes = list(run.node_states)
    for index in chosen.nodes:
        nodes[index] = NodeState.PENDING
    retries = {node.id: node.spec.retries for node in plan.nodes}
    counts = transitions.reset_steps(conn, run.id, chosen.reset, chosen.unmade, retries)
    fresh = transitions.reopen_run(conn, run.id, "".join(nodes), exclude_again(conn, run, plan))
    edit = RunEdit.of(fresh, plan)
    edit.existing = counts
    edit.delta += sum(counts.values())
    edit.candidates.extend(sorted(chosen.nodes))
    return edit
