"""Versions of definitions in use, and the handlers that this code lacks for them."""

from __future__ import annotations

import re
from typing import Any

from orchestrator.core.states import Kind
from orchestrator.definitions import registry
from orchestrator.definitions.spec import WorkflowSpec
from orchestrator.engine.catalogue import live_runs
from orchestrator.models import Definition


def in_use() -> list[dict[str, Any]]:
    """``{workflow, version, published_at, retired_at, live_runs, missing_handlers}``, newest version first."""
    live = live_runs()
    return [
        {
            "workflow": d.workflow,
            "version": d.version,
            "published_at": d.published_at,
            "retired_at": d.retired_at,
            "live_runs": live[d.workflow, d.version],
            "missing_handlers": missing_handlers(WorkflowSpec.model_validate(d.spec)),
        }
        for d in Definition.objects.order_by("workflow", "-version")
    ]


def missing_handlers(spec: WorkflowSpec) -> list[str]:
    """Names that the definition calls and nothing that is loaded here registers."""
    steps = [s.handler for s in spec.steps if s.handler and not registry.find(spec.workflow, s.handler, Kind.STEP)]
    own = [s.compensate for s in spec.steps if s.compensate]
    undos = [
        c.handler
        for c in [*own, *spec.on_failure.compensate]
        if not registry.find(spec.workflow, c.handler, Kind.COMPENSATION)
    ]
    return list(dict.fromkeys(steps + undos))


_UNSERVED = re.compile(r"worker \S+ has no handler \S+ for it\b")


def unserved(worker: str, handler: str) -> str:
    """Why a step stays queued although a worker took its ticket; kept on its row until it is claimed."""
    return f"worker {worker} has no handler {handler} for it, so it stays queued until one that has takes it"


def is_unserved(note: str) -> bool:
    """Whether the note of a queued row is such a sentence; what a handler said last may be there instead."""
    return _UNSERVED.match(note) is not None
