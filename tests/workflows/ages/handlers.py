"""What only version 1 calls."""

from __future__ import annotations

from typing import Any

from orchestrator.sdk import compensation, step
from tests.workflows.kit import handlers


@step("ages.middle")
def middle(ctx: Any) -> Any:
    """As the kit's handler, under a name that the later code no longer has."""
    return handlers.act(ctx)


@compensation("ages.unmiddle")
def unmiddle(ctx: Any) -> Any:
    """Likewise."""
    return handlers.undo(ctx)
