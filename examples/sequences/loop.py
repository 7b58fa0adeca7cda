"""Few and cheap items: a plain loop in one step."""

from __future__ import annotations

from typing import Any

from orchestrator.sdk import step


@step("tidy.sweep")
def sweep(ctx: Any) -> dict[str, int]:
    """Stops between two items when the run is cancelled or past its deadline."""
    names = ctx.input["names"]
    for number, name in enumerate(names, start=1):
        ctx.check_cancelled()
        if not ctx.artifacts.exists(name):  # a second attempt goes on where the first one stopped
            ctx.artifacts.put(name, name.upper())
        ctx.progress(number / len(names), name)
    return {"swept": len(names)}
