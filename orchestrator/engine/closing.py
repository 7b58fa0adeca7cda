"""What the end of a step or shard means for its run: letters, joins, and whether the run has failed.

Nothing here writes; see :mod:`~orchestrator.engine.advance`, which opens what follows.
"""

from __future__ import annotations

import json
from typing import Any

from orchestrator.core.states import Cause, NodeState, StepState, StopReason
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.plans import Node


def close_node(edit: RunEdit, row: Any) -> None:
    """Notes that a step or shard (a row of sql/settle_steps that is now terminal) has ended."""
    node = edit.plan.by_id[row.step]
    edit.delta -= 1
    if row.state == StepState.CANCELLED and not edit.stopping:
        _halt_for_passed_deadline(edit)
    if node.is_fan_out and row.shard:
        _close_shard(edit, node, row)
    elif row.state in (StepState.FAILED, StepState.REJECTED):
        _fail_unless_allowed(edit, node, row)
        edit.mark(node, NodeState.FAILED)
    else:
        edit.mark(node, _LETTERS[row.state])


def _close_shard(edit: RunEdit, node: Node, row: Any) -> None:
    if row.state in (StepState.FAILED, StepState.REJECTED) and not _may_go_on(node, row):
        _fail_unless_allowed(edit, node, row)
    if row.open == 0 and edit.nodes[node.index] == NodeState.ACTIVE:
        edit.mark(node, fan_out_letter(edit, node, row))
    elif not edit.stopping and edit.released.get(node.id, 0) < row.open + row.closed - row.window:
        edit.released[node.id] = edit.released.get(node.id, 0) + 1  # the window held so many back


def fan_out_letter(edit: RunEdit, node: Node, row: Any) -> NodeState:
    """What a fan-out comes to when its last shard has ended; a join that is not met fails the run."""
    met = not row.cancelled and not (row.failed and node.spec.join.mode == "all") and _enough(node, row)
    if met:
        return NodeState.SKIPPED if row.skipped == row.total else NodeState.DONE
    if row.failed and node.spec.on_error == "fail":
        # Reached without a fresh failure when a retry ran only some of the failed shards again.
        message = f"{row.failed} of {row.total} shards of {node.id} have failed"
        edit.fail(Cause.ERROR, json.dumps({"type": "JoinNotMet", "message": message, "step": node.id, "shard": ""}))
    return NodeState.FAILED if row.failed else NodeState.CANCELLED


def _may_go_on(node: Node, row: Any) -> bool:
    """Whether the join can still be met although a shard failed."""
    join = node.spec.join
    if join.mode == "settled":
        return True
    if join.mode == "at_least":
        return bool(row.failed <= row.total - join.needed(row.total))
    return False


def _enough(node: Node, row: Any) -> bool:
    return node.spec.join.mode != "at_least" or row.done + row.skipped >= node.spec.join.needed(row.total)


def _fail_unless_allowed(edit: RunEdit, node: Node, row: Any) -> None:
    """The run fails with its step, but for ``on_error: continue``."""
    if node.spec.on_error == "fail":
        edit.fail(Cause(row.cause), run_error(row.error_text, row.step, row.shard))


def run_error(error: str | None, step: str, shard: str) -> str:
    """JSON text of a run's error: the step's error with where it happened, without the traceback."""
    parts = json.loads(error) if error else {}
    kept = {"type": parts.get("type", ""), "message": parts.get("message", ""), "step": step, "shard": shard}
    return json.dumps(kept, ensure_ascii=False)


def _halt_for_passed_deadline(edit: RunEdit) -> None:
    """A handler saw the deadline pass before the dispatcher did."""
    edit.halt(StopReason.DEADLINE, Cause.DEADLINE)


_LETTERS = {
    StepState.DONE: NodeState.DONE,
    StepState.SKIPPED: NodeState.SKIPPED,
    StepState.CANCELLED: NodeState.CANCELLED,
}
