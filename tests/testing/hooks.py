"""What ``--check`` of the tests names."""

from __future__ import annotations

from orchestrator.testing.outcome import Outcome


def refuse_failed_runs(outcome: Outcome) -> None:
    """Finds fault with every run that failed."""
    assert outcome.record["state"] == outcome.state != "failed", "it failed"
