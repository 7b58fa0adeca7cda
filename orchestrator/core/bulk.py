"""Words of bulk operations: what is done to many at once, and how far it has come."""

from __future__ import annotations

from enum import StrEnum


class BulkVerb(StrEnum):
    """What is done to each: dead letters are replayed or discarded, runs retried or cancelled."""

    REPLAY = "replay"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"

    @property
    def of_runs(self) -> bool:
        """Whether it is done to runs, not to dead letters."""
        return self in (BulkVerb.RETRY, BulkVerb.CANCEL)

    @property
    def past(self) -> str:
        """``replayed``, ``discarded``, ``retried``, ``cancelled``."""
        return {"replay": "replayed", "discard": "discarded", "retry": "retried", "cancel": "cancelled"}[self]

    def objects(self, count: int = 2) -> str:
        """``dead letters`` or ``runs``; of one without the s."""
        one = "run" if self.of_runs else "dead letter"
        return one if count == 1 else f"{one}s"


class BulkState(StrEnum):
    """``paused``: it stopped by itself, after failures alike; ``stopped``: by a person. Both can be resumed."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"


class ItemState(StrEnum):
    """What became of one of the set. ``skipped``: its state does not allow the action, or it is gone."""

    PENDING = "pending"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class Outcome(StrEnum):
    """What came of the run that an item set going; empty where nobody waits for it."""

    NONE = ""
    AWAITED = "awaited"
    ENDED = "ended"
    FAILED_AGAIN = "failed_again"
