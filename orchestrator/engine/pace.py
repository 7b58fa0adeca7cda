"""How much work a worker may take at once: proven-short steps in batches, everything else one by one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[int, str]


@dataclass(slots=True)
class _Record:
    seconds: float
    cap: int


class Pace:
    """What one worker process has learned of each (definition, step): how long it takes, how many may go together."""

    def __init__(self, short_seconds: float, max_batch: int) -> None:
        self._short = short_seconds
        self._max = max_batch
        self._records: dict[Key, _Record] = {}

    def is_short(self, key: Key) -> bool:
        """Whether the step is proven to be short."""
        record = self._records.get(key)
        return record is not None and record.seconds < self._short

    def learn(self, key: Key, seconds: float) -> None:
        """An item took this long. Growth doubles with each item that is short; one that is not starts it again."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(seconds, 1)
        elif seconds >= record.seconds:
            record.seconds = 0.5 * record.seconds + 0.5 * seconds if seconds < self._short else seconds
        else:
            record.seconds = 0.9 * record.seconds + 0.1 * seconds
        record.cap = min(self._max, record.cap * 2) if seconds < self._short else 1

    def budget(self) -> Budget:
        """Room for one batch."""
        return Budget(self)

    def cost(self, key: Key) -> float:
        """Expected seconds of one item."""
        record = self._records.get(key)
        return record.seconds if record else self._short

    def cap(self, key: Key) -> int:
        """Items of the step that may go into one batch."""
        record = self._records.get(key)
        return record.cap if record else 1

    @property
    def short_seconds(self) -> float:
        """What counts as short, for a whole batch."""
        return self._short

    @property
    def max_batch(self) -> int:
        """Items in one batch at most."""
        return self._max


class Budget:
    """Room left in a batch. An unproven or long item takes all of it, so that it runs alone."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._seconds = pace.short_seconds
        self._items = pace.max_batch
        self._taken = 0

    @property
    def taken(self) -> int:
        """Items promised so far."""
        return self._taken

    @property
    def left(self) -> bool:
        """Whether another short item has room."""
        return self._seconds > 0 and self._items > 0

    def take(self, key: Key, count: int, *, alone: bool = False) -> int:
        """How many of ``count`` items of a step fit. ``alone``: also one not proven short, in an empty batch."""
        if not self._pace.is_short(key):
            if alone and not self._taken and count:
                self._taken, self._items = 1, 0
                return 1
            return 0
        cost = max(self._pace.cost(key), 1e-6)
        n = max(0, min(count, self._pace.cap(key), self._items, int(self._seconds / cost) or (not self._taken)))
        self._taken += n
        self._items -= n
        self._seconds -= n * cost
        return n
