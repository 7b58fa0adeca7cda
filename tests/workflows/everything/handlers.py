"""As they should be: what they do shows in the folder ``input["world"]``."""

from __future__ import annotations

from typing import Any

from orchestrator.sdk import step, submit
from tests.workflows.faulty import handlers as handlers
from tests.workflows.faulty.handlers import book


@step("everything.dispatch")
def dispatch(ctx: Any) -> str:
    """Books, and starts a child run for which its step then waits."""
    submit("everything-part", f"{ctx.subject_id}/courier", {"world": ctx.input["world"]})
    return book(ctx)
