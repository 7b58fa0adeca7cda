"""Opening a step again after a retry: its rows are there; what they are for may have changed.

Where the steps that it takes its condition or its items from were kept, all is as before. Where they ran again, the
condition is asked again and the items are read again: shards whose item is still there keep what they have, new items
get new shards, and shards whose item is gone and that were to run again are skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

from django.conf import settings

from orchestrator.core.states import STEP_TERMINAL, Cause, StepState
from orchestrator.engine.closing import fan_out_letter
from orchestrator.engine.edit import NewFanOut, Remade, RunEdit
from orchestrator.engine.plans import Node

#: Tickets that a fan-out puts out at once: more would only be popped and found spent.
MAX_TICKETS = 64


def reopen(edit: RunEdit, node: Node) -> None:
    """The rows that are to run again are there, pending; the others keep their results."""
    count = edit.existing[node.id]
    window = min(node.spec.window or settings.ORCHESTRATOR.default_window, count)
    edit.released[node.id] = window
    edit.current_step = node.id
    edit.ticket(node.id, node.spec.queue, min(window, MAX_TICKETS))


def skip_existing(edit: RunEdit, node: Node, cause: Cause | None = None) -> None:
    """The rows that were to run again are not needed any more; with ``blocked`` a later retry takes them up."""
    shift = -edit.existing.pop(node.id)
    edit.delta += shift
    edit.remade.append(Remade(node.id, None, [], shift, cause))


def reopen_fan_out(edit: RunEdit, node: Node, made: NewFanOut) -> bool:
    """Compares the shards that are wanted now with those that are there; whether anything of the step is open."""
    there = {row.shard: row for row in edit.look(node.id)} if edit.look else {}
    pairs = list(zip(made.shards, made.items, strict=True))
    changed = [shard in there and _canonical(text) != _canonical(there[shard].item_text) for shard, text in pairs]
    after = Counter[str]()
    for shard, other in zip(made.shards, changed, strict=True):
        after[there[shard].state if shard in there and not other else StepState.PENDING] += 1
    wanted = set(made.shards)
    for row in there.values():
        if row.shard not in wanted:
            after[StepState.SKIPPED if row.state == StepState.PENDING else row.state] += 1
    now_open = sum(n for state, n in after.items() if state not in STEP_TERMINAL)
    shift = now_open - edit.existing[node.id]
    same = not any(changed) and made.shards == [row.shard for row in there.values()]
    if not same or made.join_timeout is not None:
        edit.delta += shift
        edit.remade.append(Remade(node.id, made, changed, shift))
    if now_open:
        edit.existing[node.id] = now_open
        reopen(edit, node)
        return True
    del edit.existing[node.id]
    edit.mark(node, fan_out_letter(edit, node, _counts(after)))
    return False


def _counts(after: Counter[str]) -> Any:
    """As a row of sql/settle_steps has them."""
    failed = after[StepState.FAILED] + after[StepState.REJECTED]
    return SimpleNamespace(
        total=after.total(),
        done=after[StepState.DONE],
        skipped=after[StepState.SKIPPED],
        failed=failed,
        cancelled=after[StepState.CANCELLED],
    )


def _canonical(text: str | None) -> str:
    """The database writes JSON with other spaces and in another order."""
    return json.dumps(json.loads(text) if text else None, sort_keys=True)
