"""Shared memory between a worker process and its supervisor: what is claimed, what has begun, what is asked.

The process writes what it holds and what it runs; the supervisor reads it, also after the process was killed, and
writes whether the running handler is to stop and how long the lease holds. So a crash tells exactly which attempt it
cost: items before the current one had ended, the current one had begun, later ones had not.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

_HEADER = struct.Struct("=iiddii")  # items, current (-1: none), begun at, timeout, stop asked (code), settled up to
_ITEM = struct.Struct("=qiqd")  # id, attempt, token, timeout
_STOP_OFFSET = 24
_LEASE = struct.Struct("=d")  # monotonic time up to which the process's lease is sure to hold
_ITEMS = _HEADER.size + _LEASE.size

STOP_REASONS = {1: "the run was cancelled", 2: "the run is past its deadline", 3: "the run was cancelled by force"}


@dataclass(frozen=True, slots=True)
class Item:
    """A claimed row: (id, attempt, token), and the seconds its attempt may take."""

    id: int
    attempt: int
    token: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a process holds. ``current`` is the index of the item that runs, -1 between items."""

    items: list[Item]
    current: int
    begun_at: float
    timeout: float

    @property
    def running(self) -> Item | None:
        """The item whose handler runs."""
        return self.items[self.current] if 0 <= self.current < len(self.items) else None

    @property
    def not_begun(self) -> list[Item]:
        """Items whose handlers were never called."""
        return self.items[self.current + 1 :] if self.current >= 0 else self.items

    @property
    def ended(self) -> list[Item]:
        """Items whose handlers have ended and whose end has not been recorded yet."""
        return self.items[: self.current] if self.current > 0 else []


class Board:
    """The shared page of one worker process. Made by the supervisor before it forks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._map = mmap.mmap(-1, _ITEMS + capacity * _ITEM.size)
        self.clear()

    def clear(self) -> None:
        """Nothing is held."""
        _HEADER.pack_into(self._map, 0, 0, -1, 0.0, 0.0, 0, 0)

    # The worker process's side.

    def hold(self, items: Sequence[Item]) -> None:
        """A batch has been claimed; nothing of it has begun."""
        for i, item in enumerate(items[: self._capacity]):
            _ITEM.pack_into(self._map, _ITEMS + i * _ITEM.size, item.id, item.attempt, item.token, item.timeout)
        _HEADER.pack_into(self._map, 0, min(len(items), self._capacity), -1, 0.0, 0.0, 0, 0)

    def begin(self, index: int, timeout: float) -> None:
        """The handler of an item is about to be called."""
        count = _HEADER.unpack_from(self._map, 0)[0]
        _HEADER.pack_into(self._map, 0, count, index, time.monotonic(), timeout, 0, 0)

    def rest(self) -> None:
        """The last handler has ended; its timeout no longer counts, but its end is not recorded yet."""
        struct.pack_into("=d", self._map, 16, 0.0)

    def stop_asked(self) -> str | None:
        """Why the supervisor asks the running handler to stop, or None."""
        code = struct.unpack_from("=i", self._map, _STOP_OFFSET)[0]
        return STOP_REASONS.get(code)

    def is_leased(self) -> bool:
        """Whether the process may take on more: one that was paused past its lease may not, and will be replaced."""
        until: float = _LEASE.unpack_from(self._map, _HEADER.size)[0]
        return time.monotonic() < until

    # The supervisor's side.

    def lease(self, until: float) -> None:
        """The lease holds up to this monotonic time."""
        _LEASE.pack_into(self._map, _HEADER.size, until)

    def ask_stop(self, step_id: int, code: int) -> None:
        """Asks the running handler to stop, if it is still that of ``step_id``."""
        running = self.read().running
        if running is not None and running.id == step_id:
            struct.pack_into("=i", self._map, _STOP_OFFSET, code)

    def read(self) -> Snapshot:
        """What the process holds now."""
        count, current, begun_at, timeout, _, _ = _HEADER.unpack_from(self._map, 0)
        items = [Item(*_ITEM.unpack_from(self._map, _ITEMS + i * _ITEM.size)) for i in range(count)]
        return Snapshot(items, current, begun_at, timeout)
