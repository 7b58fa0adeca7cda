"""Artifacts for the page of a run: the first few, however many there are."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import islice

from orchestrator.engine.artifacts import Artifact, artifact_store

SHOWN = 24


@dataclass(frozen=True)
class RunArtifacts:
    """What ``components/artifacts.html`` shows. ``more``: there are others that are not in the lists."""

    pictures: list[Artifact]
    files: list[Artifact]
    more: bool


def of_run(run_id: uuid.UUID) -> RunArtifacts | None:
    """The first artifacts of a run, pictures apart; ``None`` if it has none."""
    found = list(islice(artifact_store().iter_run(run_id), SHOWN + 1))
    if not found:
        return None
    shown = found[:SHOWN]
    pictures = [a for a in shown if a.media_type.startswith("image/")]
    return RunArtifacts(pictures, [a for a in shown if a not in pictures], len(found) > SHOWN)
