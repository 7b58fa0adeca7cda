"""How far a run is, from 0 to 1: finished steps of its definition over all of them."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.states import NodeState, RunState
from orchestrator.engine.plans import Plan

#: Letters of finished steps: done, skipped on purpose, failed and passed over.
FINISHED = frozenset({NodeState.DONE, NodeState.SKIPPED, NodeState.FAILED})


def progress(plan: Plan, state: str, node_states: str, fan_outs: Mapping[str, tuple[int, int]]) -> float:
    """Each step weighs the same; a fan-out under way counts by its shards; skipped ones count as finished.

    ``fan_outs``: (finished shards, all shards) by step. A step that failed counts only where the run went on without
    it. 1 when the run is done.
    """
    if state == RunState.DONE:
        return 1.0
    stopped = state != RunState.RUNNING
    total = 0.0
    for node, letter in zip(plan.nodes, node_states, strict=False):
        counts_whole = letter in FINISHED and not (stopped and letter == NodeState.FAILED)
        finished, shards = fan_outs.get(node.id, (0, 0))
        if counts_whole:
            total += 1
        elif shards:
            total += finished / shards
    return round(min(total / max(len(plan.nodes), 1), 1.0), 4)
