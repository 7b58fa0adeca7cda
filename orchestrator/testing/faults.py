"""What is to go wrong in which run: the vocabulary that the driver of a matrix and its worker processes share.

The plan is a JSON file, ``{"definition": id, "ledger": path, "folder": path, "cases": {case id: [fault, …]}}``; a run
of that definition belongs to the case named by its label ``fault_matrix``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Names the plan. Worker processes inject faults only where it is set.
VARIABLE = "ORCHESTRATOR_FAULT_PLAN"
LABEL = "fault_matrix"

FAIL, ERROR, CANCEL, CANCEL_WAITING = "fail", "error", "cancel", "cancel_waiting"
KILL_BEFORE, KILL_EXTERNAL, KILL_AFTER = "kill_before", "kill_external", "kill_after"
DUPLICATE, DUPLICATE_FIRST = "duplicate", "duplicate_first"
#: What ``--only`` takes.
GROUPS = ("fail", "retry", "kill", "duplicate", "cancel")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong at one row (``kind``, ``step``, ``shard``) of a run.

    It strikes on the first attempt alone, ``fail`` on every one. ``name`` and ``nth``: which call to the outside.
    """

    what: str
    kind: str
    step: str
    shard: str = ""
    name: str = ""
    nth: int = 1

    def strikes(self, kind: str, step: str, shard: str, attempt: int) -> bool:
        """Whether it is meant for this attempt."""
        return (self.kind, self.step, self.shard) == (kind, step, shard) and (attempt == 1 or self.what == FAIL)


def write_plan(path: Path, definition: int, cases: dict[str, Iterable[Fault]]) -> None:
    """Replaces the plan as one act: a worker reads the old one or the new one. Ledger and gates lie beside it."""
    folder = path.parent
    plan = {
        "definition": definition,
        "ledger": str(folder / "ledger.jsonl"),
        "folder": str(folder),
        "cases": {case: [asdict(fault) for fault in faults] for case, faults in cases.items()},
    }
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(plan))
    aside.replace(path)


class PlanFile:
    """The plan as a worker process sees it: read again whenever it was replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self.definition = 0
        self.ledger = Path()
        self.folder = Path()
        self._cases: dict[str, list[Fault]] = {}
        self.read()

    def read(self) -> None:
        """Reads it if it has changed.

        Raises:
            OSError, ValueError: it is not there, or not a plan.
        """
        found = os.stat(self._path)  # noqa: PTH116 - at every handler
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp != self._stamp:
            plan: dict[str, Any] = json.loads(Path(self._path).read_text())
            self.definition = int(plan["definition"])
            self.ledger, self.folder = Path(plan["ledger"]), Path(plan["folder"])
            self._cases = {case: [Fault(**fault) for fault in faults] for case, faults in plan["cases"].items()}
            self._stamp = stamp

    def faults(self, case: str) -> list[Fault]:
        """Faults of a case; a case that is not known has none."""
        return self._cases.get(case, [])
