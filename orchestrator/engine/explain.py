"""Where a run stands, said in a sentence: the same in the dashboard, the admin, the API and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.core.states import RunState
from orchestrator.engine.explain_brief import brief, briefs
from orchestrator.engine.explain_end import cancelled, done, failed, stopping
from orchestrator.engine.explain_facts import Facts
from orchestrator.engine.explain_live import running
from orchestrator.engine.explain_reply import reply
from orchestrator.engine.explain_words import sentences
from orchestrator.models import Run

__all__ = ["Where", "brief", "briefs", "explain", "reply", "where"]

_TELL = {
    RunState.RUNNING: running,
    RunState.COMPENSATING: stopping,
    RunState.DONE: done,
    RunState.FAILED: failed,
    RunState.CANCELLED: cancelled,
}


@dataclass(frozen=True)
class Where:
    """The answer to "where is it?".

    ``sentence`` is for those who run the system and begins with ``lead``; ``next`` says what comes then and what
    happens otherwise; ``reply`` is for the customer and names nothing internal. ``due`` is when the run goes on by
    itself, where the sentence counts down to it.
    """

    sentence: str
    next: str
    reply: str
    lead: str = ""
    due: datetime | None = None


def where(run: Run, now: datetime | None = None) -> Where:
    """The answer for one run, from its rows. At most ten queries, whatever the number of shards.

    ``now`` is the time that lengths and countdowns are taken from, by default the present.
    """
    return explain(Facts(run, now))


def explain(facts: Facts) -> Where:
    """The same from facts already read."""
    # A run that stops stays "running" until its last attempt has ended.
    tell = stopping if facts.run.stop and not facts.terminal else _TELL[RunState(facts.run.state)]
    told = tell(facts)
    lead = sentences(told.lead)
    return Where(sentences(lead, *told.rest), sentences(*told.next), reply(facts.run, facts.now), lead, told.due)
