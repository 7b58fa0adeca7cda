"""The completion join: it runs once, when all of a fan-out has ended, and sees what failed."""

from __future__ import annotations

from typing import Any

from examples.sequences import service
from orchestrator.sdk import Fail, step


@step("survey.ask")
def ask(ctx: Any) -> str:
    """One question; a wrong address fails for good, all else is tried again."""
    if ctx.shard in ctx.input.get("moved", []):
        raise Fail(f"nobody lives in {ctx.shard} any more")
    return service.call(f"{ctx.subject_id}/{ctx.shard}")


@step("survey.join")
def join(ctx: Any) -> dict[str, Any]:
    """``output`` has the shards that are done, ``failures`` those that failed for good."""
    return {"answers": len(ctx.output("ask")), "failed": sorted(ctx.failures("ask"))}
