"""Outputs of steps: small ones on the row, larger ones as artifacts by reference, unseen by handlers."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from orchestrator.core.states import Kind, StepState
from orchestrator.engine.artifacts import ArtifactMissing, StorageAway, artifact_store
from orchestrator.engine.db import Connection, rows
from orchestrator.engine.edit import ReadOutput
from orchestrator.engine.plans import Node

_OUTPUTS = """
SELECT shard, output::text AS output, output_ref
FROM workflow_steps
WHERE run_id = %s AND step = %s AND kind = %s AND state = %s
ORDER BY ordinal
"""
_INPUT = "SELECT input::text AS input FROM workflow_runs WHERE id = %s"


def read_output(conn: Connection, run_id: UUID, step: str, fan_out: bool, kind: str = Kind.STEP) -> Any:
    """A step's output, None if it was skipped; of a fan-out ``{shard: output}`` of the shards that are done.

    Raises:
        ArtifactMissing: an output kept by reference is gone.
        StorageAway: it cannot be read at the moment.
    """
    found = rows(conn, _OUTPUTS, [run_id, step, kind, StepState.DONE])
    values = {row.shard: _value(row, step) for row in found}
    if fan_out:
        return {shard: value for shard, value in values.items() if shard}
    return values.get("")


def _value(row: Any, step: str) -> Any:
    if row.output_ref:
        try:
            return artifact_store().load_output(row.output_ref)
        except ArtifactMissing as problem:
            of = f"{step} {row.shard}".strip()
            raise ArtifactMissing(
                f"the output of {of} is gone: {problem.message}; put it back, or retry the run from {step}"
            ) from None
        except Exception as problem:
            raise StorageAway(f"the output of {step} cannot be read at the moment, try again: {problem}") from problem
    return json.loads(row.output) if row.output is not None else None


def read_input(conn: Connection, run_id: UUID) -> Any:
    """The run's input."""
    return json.loads(rows(conn, _INPUT, [run_id])[0].input)


def reader(conn: Connection) -> ReadOutput:
    """Reads inputs and outputs for decisions within one transaction, each once."""
    seen: dict[tuple[UUID, str | None], Any] = {}

    def read(run_id: UUID, node: Node | None) -> Any:
        key = (run_id, node.id if node else None)
        if key not in seen:
            seen[key] = read_output(conn, run_id, node.id, node.is_fan_out) if node else read_input(conn, run_id)
        return seen[key]

    return read
