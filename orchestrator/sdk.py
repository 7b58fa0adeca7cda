"""What workflow authors import: decorators that register handlers, starting runs, and how a handler ends otherwise."""

from __future__ import annotations

from orchestrator.core.outcomes import Cancelled, Fail, Retry, Skip
from orchestrator.definitions.registry import compensation, step
from orchestrator.engine.limits import Limit
from orchestrator.engine.limits import set_topic_limit as _set_topic_limit
from orchestrator.engine.submit import SUBMITTER, submit, submit_many

__all__ = ["Cancelled", "Fail", "Retry", "Skip", "compensation", "set_topic_limit", "step", "submit", "submit_many"]


def set_topic_limit(name: str, limit: Limit) -> None:
    """Sets a topic's cluster-wide limit from now on: 0 pauses, None is unlimited. It wins over the definition's.

    ``"default"`` goes back to what the settings or the definition say.

    Raises:
        NotFound: back to the default of a topic that there is not.
        Invalid: a name that no topic can have, or a limit below zero.
    """
    _set_topic_limit(name, limit, SUBMITTER)
