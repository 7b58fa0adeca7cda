"""What a retry would run again, and which calls to the outside that would make again."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any
from uuid import UUID

from orchestrator.core.mask import mask_text
from orchestrator.core.states import RunState
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.plans import Plan, load_plan
from orchestrator.engine.retry import RetryPreview, choose

#: Child runs that are looked into, of one run and altogether, and how far down.
_CHILDREN, _DEPTH = 200, 5

_MARKED = """
SELECT id, step, shard, external FROM workflow_steps
WHERE run_id = %(run)s AND kind = 'step'
  AND (external IS NOT NULL OR id IN (SELECT parent_step_id FROM workflow_runs WHERE parent_run_id = %(run)s))"""
_OF_CHILDREN = """
SELECT id, definition_id, state, node_states, parent_step_id FROM workflow_runs
WHERE parent_run_id = %s AND parent_step_id IS NOT NULL ORDER BY id LIMIT %s"""


def preview(conn: Connection, run: Any, plan: Plan, from_step: str | None) -> RetryPreview:
    """The steps that would run again, each with the calls that its earlier attempts (or its child runs) have marked.

    A mark is written before the call is made, so it says that the call may have been made, not that it was.

    Raises:
        Invalid: ``from_step`` names no step of the definition.
    """
    steps, kept = _look(conn, run, plan, from_step, _DEPTH)
    counted = Counter(name for item in steps for name in item.side_effects)
    return RetryPreview(steps, kept, dict(counted.most_common()))


def _look(conn: Connection, run: Any, plan: Plan, from_step: str | None, depth: int) -> tuple[list[Any], list[str]]:
    chosen = choose(conn, run, plan, from_step, None)
    marked = {(row.step, row.shard): row for row in rows(conn, _MARKED, {"run": run.id})}
    children = defaultdict(list)
    if depth and marked:
        for child in rows(conn, _OF_CHILDREN, [run.id, _CHILDREN]):
            children[child.parent_step_id].append(child)
    items = []
    for item in chosen.items:
        row = marked.get((item.step, item.shard))
        names = _names(row.external) if row else []
        for child in children[row.id] if row else []:
            names += _of_child(conn, child, item.why == "undone", depth)
        items.append(replace(item, side_effects=names) if names else item)
    return items, chosen.kept


def _of_child(conn: Connection, child: Any, anew: bool, depth: int) -> list[str]:
    """Of a step that was undone another child is made; one that has failed goes on; one that is done stays so."""
    if anew:
        return _all_of(conn, child.id)
    if child.state not in (RunState.FAILED, RunState.CANCELLED):
        return []
    items, _ = _look(conn, child, load_plan(conn, child.definition_id), None, depth - 1)
    return [name for item in items for name in item.side_effects]


def _all_of(conn: Connection, run_id: UUID) -> list[str]:
    query = """
        WITH RECURSIVE below AS (
            SELECT id FROM workflow_runs WHERE id = %s
            UNION SELECT r.id FROM workflow_runs r JOIN below b ON r.parent_run_id = b.id)
        SELECT s.external FROM below b JOIN workflow_steps s ON s.run_id = b.id
        WHERE s.kind = 'step' AND s.external IS NOT NULL ORDER BY s.id LIMIT %s"""
    return [name for row in rows(conn, query, [run_id, _CHILDREN]) for name in _names(row.external)]


def _names(external: str | None) -> list[str]:
    return [mask_text(name) for name in (external or "").split("\n") if name]
