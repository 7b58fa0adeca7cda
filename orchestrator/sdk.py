"""What workflow authors import: decorators that register handlers, and the ways a handler ends an attempt."""

from __future__ import annotations

from orchestrator.core.outcomes import Cancelled, Fail, Retry, Skip
from orchestrator.definitions.registry import compensation, step

__all__ = ["Cancelled", "Fail", "Retry", "Skip", "compensation", "step"]
