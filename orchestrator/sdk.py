"""What workflow authors import: decorators that register handlers, starting runs, and how a handler ends otherwise."""

from __future__ import annotations

from orchestrator.core.outcomes import Cancelled, Fail, Retry, Skip
from orchestrator.definitions.registry import compensation, step
from orchestrator.engine.submit import submit, submit_many

__all__ = ["Cancelled", "Fail", "Retry", "Skip", "compensation", "step", "submit", "submit_many"]
