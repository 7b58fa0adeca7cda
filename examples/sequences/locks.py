"""Four answers to a lock that somebody else holds: wait, refuse, go on without, keep for later."""

from __future__ import annotations

from typing import Any

from examples.sequences import service
from orchestrator.sdk import step


@step("item.process")
@step("profile.fetch")
@step("sync.pull")
@step("ledger.post")
def work(ctx: Any) -> str:
    """What must not happen twice at the same time."""
    return service.call(ctx.subject_id)


@step("sync.report")
def report(ctx: Any) -> dict[str, Any]:
    """Sees that nothing was pulled where the lock was held."""
    return {"pulled": ctx.output("pull")}
