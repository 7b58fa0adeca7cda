"""What becomes ready when steps have ended: the one place that reads the graph forward.

Nothing here writes. It runs under the run's lock, on a :class:`~orchestrator.engine.edit.RunEdit`, and is the same
for the first steps of a new run, for what follows a completion, and for what a retry opens again.
"""

from __future__ import annotations

import json
import random
from typing import Any

from django.conf import settings

from orchestrator.core.shards import MAX_ITEMS, shard_names
from orchestrator.core.states import NODE_SATISFIED, Cause, NodeState, StepState
from orchestrator.core.templates import MISSING, follow, render
from orchestrator.core.text import NotStorable, to_json
from orchestrator.engine.artifacts import ArtifactMissing
from orchestrator.engine.closing import run_error
from orchestrator.engine.edit import NewFanOut, NewStep, ReadOutput, RunEdit, Take
from orchestrator.engine.plans import Node, Plan
from orchestrator.engine.reopen import MAX_TICKETS as MAX_TICKETS
from orchestrator.engine.reopen import reopen, reopen_fan_out, skip_existing

#: Up to this many shards are made together with the rows of other runs; more get a statement of their own.
SMALL_FAN_OUT = 64


def take_nothing(plan: Plan, node: Node, count: int) -> int:
    """For callers that are not workers: everything goes out through the outbox."""
    return 0


def new_token() -> int:
    """A claim token. Random, so that a claim that was lost never passes for its successor."""
    return random.getrandbits(52)


def open_ready(edit: RunEdit, read: ReadOutput, take: Take = take_nothing) -> None:
    """Opens every candidate whose predecessors have all ended well; what is skipped at once is passed through."""
    passed: set[int] = set()
    while edit.candidates and not edit.stopping:
        node = edit.plan.nodes[edit.candidates.pop(0)]
        if edit.nodes[node.index] == NodeState.PENDING:
            if _is_ready(edit, node):
                try:
                    _open(edit, node, read, take)
                except ArtifactMissing as problem:  # nothing of the node has been opened yet
                    _refuse(edit, node, Cause.ARTIFACT_MISSING, "ArtifactMissing", problem.message)
        elif edit.row.retries and edit.nodes[node.index] in NODE_SATISFIED and node.index not in passed:
            # A retry kept this step's result although one before it ran again; what comes behind may be ready now.
            passed.add(node.index)
            edit.candidates.extend(node.successors)


def _is_ready(edit: RunEdit, node: Node) -> bool:
    """Predecessors have ended well; after a retry all of them, however far: between may lie steps that were kept."""
    behind = edit.plan.ancestors(node.index) if edit.row.retries else node.after
    return all(_satisfied(edit, i) for i in behind)


def _satisfied(edit: RunEdit, index: int) -> bool:
    """A step that failed for good satisfies only where it may fail; it is asked after the replay of another."""
    letter = edit.nodes[index]
    return letter in NODE_SATISFIED and (letter != NodeState.FAILED or edit.plan.nodes[index].spec.on_error != "fail")


def fail_for_what_was_left(edit: RunEdit) -> None:
    """Nothing is open any more, but a step that failed earlier was not run again: the run has failed after all."""
    for node in edit.plan.nodes:
        if edit.nodes[node.index] == NodeState.FAILED and not _satisfied(edit, node.index):
            message = (
                f"{node.id} had failed before and was not run again; replay its dead letters too, or retry the run"
            )
            error = {"type": "StillFailed", "message": message, "step": node.id, "shard": ""}
            edit.fail(Cause.ERROR, json.dumps(error, ensure_ascii=False))


def _open(edit: RunEdit, node: Node, read: ReadOutput, take: Take) -> None:
    spec = node.spec
    if spec.when is not None and not _holds(edit, node, spec.when, read):
        if node.id in edit.existing:
            skip_existing(edit, node)
        else:
            edit.add(NewStep(node.id, StepState.SKIPPED))
        edit.mark(node, NodeState.SKIPPED)
    elif spec.fan_out is not None:
        _open_fan_out(edit, node, read, take)
    elif node.id in edit.existing:
        reopen(edit, node)
        edit.mark(node, NodeState.ACTIVE)
    elif spec.workflow is not None:
        edit.add(NewStep(node.id, StepState.WAITING, waiting_for="children", ready_in=None))
        edit.mark(node, NodeState.ACTIVE)
        edit.current_step = node.id
    elif spec.approval is not None:
        edit.add(
            NewStep(
                node.id,
                StepState.WAITING,
                waiting_for="approval",
                waiting_name=spec.approval.group,
                ready_in=spec.approval.timeout,
            )
        )
        edit.mark(node, NodeState.ACTIVE)
        edit.current_step = node.id
    elif spec.wait is not None:
        edit.add(NewStep(node.id, StepState.WAITING, waiting_for="timer", ready_in=spec.wait))
        edit.mark(node, NodeState.ACTIVE)
    else:
        _open_plain(edit, node, read, take)


def _open_plain(edit: RunEdit, node: Node, read: ReadOutput, take: Take) -> None:
    lock = _lock_name(edit, node, read)
    taken = 0 if edit.is_gated(node.id) else take(edit.plan, node, 1)
    edit.mark(node, NodeState.ACTIVE)
    edit.current_step = node.id
    edit.add(
        NewStep(
            node.id,
            StepState.RUNNING if taken else StepState.QUEUED,
            max_attempts=node.spec.retries + 1,
            queue=node.spec.queue,
            topic=node.spec.topic.name if node.spec.topic else None,
            lock_name=lock,
            token=new_token() if taken else None,
        )
    )
    if not taken:
        edit.ticket(node.id, node.spec.queue)


def _open_fan_out(edit: RunEdit, node: Node, read: ReadOutput, take: Take) -> None:
    try:
        items = _items(edit, node, read)
        texts = [to_json(item, f"item {i}") for i, item in enumerate(items)]
    except (BadFanOut, NotStorable) as problem:
        _refuse(edit, node, Cause.INVALID_FAN_OUT, "InvalidFanOut", str(problem))
        return
    edit.current_step = node.id
    again = node.id in edit.existing
    if not items and not again:
        edit.add(NewStep(node.id, StepState.SKIPPED))
        edit.mark(node, NodeState.SKIPPED)
        return
    fan_out = _new_fan_out(edit, node, read, items, texts)
    if again:
        if reopen_fan_out(edit, node, fan_out):
            edit.mark(node, NodeState.ACTIVE)
        return
    edit.mark(node, NodeState.ACTIVE)
    edit.fan_outs.append(fan_out)
    taken = _make_shards(edit, node, fan_out, take)
    if fan_out.window > taken:
        edit.ticket(node.id, node.spec.queue, min(fan_out.window - taken, MAX_TICKETS))


def _new_fan_out(edit: RunEdit, node: Node, read: ReadOutput, items: list[Any], texts: list[str]) -> NewFanOut:
    shards = shard_names(items)
    return NewFanOut(
        step=node.id,
        shards=shards,
        items=texts,
        window=min(node.spec.window or settings.ORCHESTRATOR.default_window, len(items)),
        max_attempts=node.spec.retries + 1,
        queue=node.spec.queue,
        bulk=len(items) > SMALL_FAN_OUT and not node.spec.workflow,
        topic=node.spec.topic.name if node.spec.topic else None,
        locks=[_lock_name(edit, node, read, shard, item) for shard, item in zip(shards, items, strict=True)],
        join_timeout=node.spec.join_timeout,
    )


def _make_shards(edit: RunEdit, node: Node, fan_out: NewFanOut, take: Take) -> int:
    """Makes the rows, those of a large fan-out by a statement of their own; how many run in the calling worker."""
    if fan_out.bulk:
        edit.delta += len(fan_out.items)
        return 0
    window = fan_out.window
    taken = 0 if node.spec.workflow or edit.is_gated(node.id) else min(take(edit.plan, node, window), window)
    for i, (shard, text, lock) in enumerate(zip(fan_out.shards, fan_out.items, fan_out.locks, strict=True)):
        released = StepState.RUNNING if i < taken else edit.released_state(node.id)
        state = released if i < window else StepState.PENDING
        edit.add(
            NewStep(
                node.id,
                state,
                shard=shard,
                ordinal=i,
                max_attempts=fan_out.max_attempts,
                queue=fan_out.queue,
                waiting_for="children" if state is StepState.WAITING else None,
                ready_in=None if state is StepState.WAITING else 0.0,
                item=text,
                topic=fan_out.topic,
                lock_name=lock,
                token=new_token() if i < taken else None,
            )
        )
    return taken


class BadFanOut(ValueError):
    """What the step was to fan out over is not a list, or too long; the message says which."""


def _items(edit: RunEdit, node: Node, read: ReadOutput) -> list[Any]:
    fan_out = node.spec.fan_out
    assert fan_out is not None
    if fan_out.source is None:
        return list(fan_out.items or [])
    if edit.nodes[edit.plan.by_id[fan_out.source.split(".")[0]].index] == NodeState.SKIPPED:
        return []  # what was skipped has no output: there is nothing to fan out over
    value = lookup(edit, fan_out.source, read)
    if value is MISSING or not isinstance(value, list):
        kind = "nothing" if value is MISSING or value is None else type(value).__name__
        raise BadFanOut(f"{fan_out.source} is {kind}, not a list, so {node.id} has nothing to fan out over")
    if len(value) > MAX_ITEMS:
        raise BadFanOut(f"{fan_out.source} has {len(value):,} items; a fan-out takes at most {MAX_ITEMS:,}")
    return value


def _refuse(edit: RunEdit, node: Node, cause: Cause, kind: str, message: str) -> None:
    """The step fails before any of it runs; shards that a retry had made pending are to run with the next one."""
    error = json.dumps({"type": kind, "message": message}, ensure_ascii=False)
    if node.id in edit.existing:
        skip_existing(edit, node, Cause.BLOCKED)
    edit.add(NewStep(node.id, StepState.FAILED, cause=cause, error=error))
    if node.spec.on_error == "fail":
        edit.fail(cause, run_error(error, node.id, ""))
    edit.mark(node, NodeState.FAILED)


def _holds(edit: RunEdit, node: Node, condition: str, read: ReadOutput) -> bool:
    try:
        value = lookup(edit, condition, read)
    except ArtifactMissing:
        if node.id in edit.existing and not node.is_fan_out:
            return True  # it had begun before the retry, so it was decided then
        raise
    return value is not MISSING and bool(value)


def _lock_name(edit: RunEdit, node: Node, read: ReadOutput, shard: str = "", item: Any = None) -> str | None:
    """The lock that a row needs: the step's, its fields filled in, else the one named at submission."""
    if node.spec.lock is None:
        name: str | None = edit.row.lock_name
        return name
    return str(fill(edit, node.spec.lock, read, shard, item))[:500]


def fill(edit: RunEdit, template: Any, read: ReadOutput, shard: str = "", item: Any = None) -> Any:
    """A template with its fields filled in; one lone field keeps its JSON type."""

    def resolve(name: str) -> Any:
        root, *rest = name.split(".")
        if root in ("item", "shard"):
            value = follow({"item": item, "shard": shard}, [root, *rest])
        elif root in ("subject_id", "run_id"):
            value = edit.row.subject_id if root == "subject_id" else str(edit.row.id)
        else:
            value = lookup(edit, name, read)
        return None if value is MISSING else value

    return render(template, resolve)


def lookup(edit: RunEdit, path: str, read: ReadOutput) -> Any:
    """The value at ``step.path`` in the outputs of this run, or ``input.path``; MISSING where there is none."""
    root, *rest = path.split(".")
    if root == "input":
        return follow(read(edit.id, None), rest)
    node = edit.plan.by_id[root]
    if edit.nodes[node.index] == NodeState.SKIPPED:
        return MISSING
    return follow(read(edit.id, node), rest)
