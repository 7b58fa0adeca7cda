"""Slow duties of the dispatcher, beside its loop: the doctor's quick look and the end of artifacts' retention.

They run in a thread with a connection of its own, one at a time, so that no ticket waits for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from orchestrator.engine import retention
from orchestrator.engine.db import Connection, connect
from orchestrator.engine.doctor import Scope
from orchestrator.engine.doctor.keep import keep
from orchestrator.transport import doctor

log = logging.getLogger("switchyard.dispatcher")
#: Seconds: how often the doctor looks, how often old artifacts are looked for, and the wait before the first time.
DOCTOR_EVERY = 600.0
RETENTION_EVERY = 3600.0
FIRST = 20.0


class Upkeep:
    """Kept by the dispatcher; ``tick`` is its duty."""

    def __init__(self, holder: str) -> None:
        self._holder = holder
        now = time.monotonic()
        self._duties: dict[Callable[[Connection], None], float] = {
            self.look: now + FIRST,
            self.retire: now + 3 * FIRST,
        }
        self._thread: threading.Thread | None = None

    def tick(self, conn: Connection) -> int:
        """Starts what is due, unless something is still at work. Answers 0: nothing has become ready by it."""
        if self._thread is None or not self._thread.is_alive():
            for duty, due in self._duties.items():
                if time.monotonic() >= due:
                    self._duties[duty] = time.monotonic() + (DOCTOR_EVERY if duty == self.look else RETENTION_EVERY)
                    self._thread = threading.Thread(target=self._run, args=[duty], name="upkeep", daemon=True)
                    self._thread.start()
                    break
        return 0

    def _run(self, duty: Callable[[Connection], None]) -> None:
        try:
            with connect("switchyard upkeep") as conn:
                duty(conn)
        except Exception as problem:
            log.warning("upkeep did not get through and is tried again later: %s", problem)

    def look(self, conn: Connection) -> None:
        """The doctor's quick look; what is broken is logged and kept for the pages. Nothing is mended."""
        found = doctor.examine(conn, Scope.quick(), quick=True)
        keep(conn, found, self._holder)
        for broken in found.broken:
            log.warning("doctor: %s %s: %s", broken.invariant, broken.id, broken.detail)

    def retire(self, conn: Connection) -> None:
        """Artifacts of runs that did not end done go after a week, leases of ended processes after a day."""
        retention.expire_artifacts(conn)
        retention.forget_leases(conn)
