"""The segmented progress bar of a run."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.queries.run_steps import StepView
from orchestrator.core.states import NodeState


@dataclass(frozen=True)
class Segment:
    """One part of the progress bar, in percent of its width."""

    x: float
    width: float
    fill: str


def segments(views: list[StepView]) -> list[Segment]:
    """Parts of the progress bar, each step as wide as any other."""
    if not views:
        return []
    step = 100 / len(views)
    gap = 0.36 if len(views) <= 80 else 0.0
    parts = []
    for i, view in enumerate(views):
        x, width = i * step + gap / 2, step - gap
        fill = "f-track" if view.letter in (NodeState.PENDING, NodeState.BLOCKED) else view.look.fill
        if view.is_fan_out and view.letter == NodeState.ACTIVE and view.tally.total:
            done = width * view.finished / view.tally.total
            parts.append(Segment(round(x, 2), round(done, 2), "f-ok"))
            parts.append(Segment(round(x + done, 2), round(width - done, 2), fill))
        else:
            parts.append(Segment(round(x, 2), round(width, 2), fill))
    return [part for part in parts if part.width > 0]
