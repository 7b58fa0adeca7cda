"""A world of files for the handlers of ``tests.workflows.faulty``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.testing.outcome import Outcome
from tests.harness.live import Live

PACKAGE = "tests.workflows.faulty"


class World:
    """Effects that handlers have left, and what they should be at the end of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input = {"world": str(folder)}

    def effects(self, run_id: Any) -> dict[str, int]:
        """How often each effect of a run was had, by step (``rooms.a``, ``pay._``)."""
        found = self.folder.glob(f"runs.{run_id}.*")
        return {
            p.name.removeprefix(f"runs.{run_id}.").removesuffix(".effect"): len(p.read_text().split("\n")) - 1
            for p in found
        }

    def check(self, outcome: Outcome) -> None:
        """A callback for a matrix: everything once where the run is done, nothing where it was undone."""
        effects = self.effects(outcome.run_id)
        assert all(n == 1 for n in effects.values()), f"effects were had more than once: {effects}"
        if outcome.state != "done" and outcome.case.expect.undone:
            left = sorted(effects)
            assert not left, f"effects are left: {left}"


@pytest.fixture
def world(live: Live, tmp_path: Path) -> World:
    live.configure(ORCHESTRATOR_WORKFLOWS=PACKAGE)
    folder = tmp_path / "world"
    folder.mkdir()
    return World(folder)
