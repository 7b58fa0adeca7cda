"""What handlers of a fault matrix really did: an append-only file that worker processes write around every handler.

A line an event, written at once (O_APPEND), so that a process that is killed leaves every line whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One line.

    ``event``: ``start``, ``external`` (``note``: its name), ``end``, ``raise`` (``note``: the exception's type),
    ``fault`` (``note``: what was injected), ``hold`` (waits to be cancelled), ``closure`` (``note``: its fields).
    """

    case: str
    run: str
    kind: str
    step: str
    shard: str
    attempt: int
    event: str
    note: Any = None
    pid: int = 0

    @property
    def row(self) -> tuple[str, str, str]:
        """(kind, step, shard)."""
        return (self.kind, self.step, self.shard)


def append(path: Path, entry: Entry) -> None:
    """Adds a line."""
    fd = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(fd, json.dumps(asdict(entry)).encode() + b"\n")
    finally:
        os.close(fd)


class Reader:
    """Reads a ledger as it grows; ``runs`` holds all lines read so far, by run, in the order they were written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.runs: dict[str, list[Entry]] = {}

    def fresh(self) -> list[Entry]:
        """Lines written since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = [Entry(**json.loads(line)) for line in whole.splitlines()]
        for entry in found:
            self.runs.setdefault(entry.run, []).append(entry)
        return found
