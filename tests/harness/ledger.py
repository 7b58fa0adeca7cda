"""What test handlers really did: an append-only file that handlers of any process write to.

A line a call, written at once (O_APPEND, less than a page), so that a process that is killed leaves every line whole.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "KIT_FOLDER"
_NAME = "ledger.jsonl"


@dataclass(frozen=True)
class Entry:
    """One line. ``event``: ``start`` or ``end`` of a step's handler, ``undo`` or ``undone`` of a compensation's."""

    run: str
    step: str
    shard: str
    attempt: int
    event: str
    at: float
    pid: int
    key: str
    note: object = None


def write(ctx: object, event: str, note: object = None) -> None:
    """Appends a line for a handler's context."""
    line = {
        "run": ctx.run_id, "step": ctx.step, "shard": ctx.shard, "attempt": ctx.attempt, "event": event,
        "at": time.time(), "pid": os.getpid(), "key": ctx.idempotency_key, "note": note,
    }  # type: ignore[attr-defined]  # fmt: skip
    fd = os.open(folder() / _NAME, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(fd, json.dumps(line).encode() + b"\n")
    finally:
        os.close(fd)


def folder() -> Path:
    """Where the ledger and the gates of this test are."""
    return Path(os.environ[VARIABLE])


class Ledger:
    """Reads the ledger. Steps are named ``a``, or ``a/2`` for one shard; a name alone takes all shards."""

    def __init__(self, path: Path) -> None:
        self.folder = path
        self._file = path / _NAME

    def entries(self, run: object = None) -> list[Entry]:
        """All lines, oldest first; of one run."""
        if not self._file.exists():
            return []
        found = [Entry(**json.loads(line)) for line in self._file.read_text().splitlines()]
        return sorted((e for e in found if run is None or e.run == str(run)), key=lambda e: e.at)

    def of(self, name: str, events: Iterable[str], run: object = None) -> list[Entry]:
        """Lines of a step or shard with one of these events."""
        step, _, shard = name.partition("/")
        return [
            e for e in self.entries(run) if e.step == step and e.event in events and (not shard or e.shard == shard)
        ]

    def calls(self, name: str, run: object = None) -> int:
        """How often its handler was called."""
        return len(self.of(name, ("start", "undo"), run))

    def effects(self, name: str, run: object = None) -> int:
        """How often its handler got to its end."""
        return len(self.of(name, ("end", "undone"), run))

    def order(self, run: object = None, *events: str) -> list[str]:
        """Steps (``a``, ``a/2``) in the order of these events; default: starts of steps and of compensations."""
        wanted = events or ("start", "undo")
        return [f"{e.step}/{e.shard}" if e.shard else e.step for e in self.entries(run) if e.event in wanted]

    def open(self, gate: str) -> None:
        """Lets handlers that wait at this gate go on."""
        (self.folder / f"gate-{gate}").touch()

    def close(self, gate: str) -> None:
        """Closes it again."""
        (self.folder / f"gate-{gate}").unlink(missing_ok=True)
