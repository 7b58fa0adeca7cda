"""The chain: each step starts when the one above it is done."""

from __future__ import annotations

from typing import Any

from examples.sequences import service
from orchestrator.sdk import step


@step("pipe.fetch")
def fetch(ctx: Any) -> dict[str, Any]:
    """Fetches what the run is about."""
    return {"page": f"page of {ctx.subject_id}"}


@step("pipe.enrich")
def enrich(ctx: Any) -> dict[str, Any]:
    """Asks a service about it."""
    return {"page": ctx.output("fetch")["page"], "more": service.call(ctx.subject_id)}


@step("pipe.finalize")
def finalize(ctx: Any) -> dict[str, Any]:
    """The last one: what it returns is the output of the run."""
    return {"kept": [ctx.output("enrich")["page"], ctx.output("enrich")["more"]]}
