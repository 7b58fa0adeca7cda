"""Running a claimed batch item by item, so that a slow or deadly item costs nobody else anything.

A watching thread settles what is finished and gives back what has not begun as soon as one item turns out to take
long; it also writes what handlers report (progress, log lines) while they run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from orchestrator.engine import leases, reports
from orchestrator.engine.db import Connection
from orchestrator.engine.pace import Pace
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.transitions import Closure
from orchestrator.engine.work import Work
from orchestrator.transport.board import Board, Item
from orchestrator.transport.execute import Alarm, execute

log = logging.getLogger("switchyard.worker")
#: An item that runs longer than this no longer holds up its batch.
PATIENCE = 0.25
_TICK = 0.1


class Batch:
    """Runs batches in the main thread and watches over them from another, on a connection of its own."""

    def __init__(
        self, connect: Callable[[], Connection], watch_connect: Callable[[], Connection], board: Board
    ) -> None:
        self._connect = connect
        self._watch_connect = watch_connect
        self._board = board
        self._alarm = Alarm()
        self._lock = threading.Lock()
        self._works: list[Work] = []
        self._closures: list[Closure] = []
        self._owed: list[Work] = []  # taken out of the batch, never to be run here, and perhaps not given back yet
        self._pay_at = 0.0
        self._current = -1
        self._begun_at = 0.0
        self._reports: dict[tuple[int, int, int], dict[str, Any]] = {}
        self._report_at = 0.0
        self._wake = threading.Event()
        threading.Thread(target=self._watch, name="switchyard-watch", daemon=True).start()

    def run(self, works: list[Work], pace: Pace) -> list[Closure]:
        """Runs the handlers one after the other; returns the closures that the watcher has not settled already."""
        with self._lock:
            self._works, self._closures, self._current = works, [], -1
            self._hold(works)
        index = 0
        while True:
            with self._lock:
                if index >= len(self._works):
                    break
                work = self._works[index]
                self._current, self._begun_at = index, time.monotonic()
                self._board.begin(index, work.spec.timeout)
            closure = execute(work, self._connect, self, self._alarm)
            took = time.monotonic() - self._begun_at
            pace.learn((work.plan.definition_id, work.step), took)
            with self._lock:
                self._closures.append(closure)
                index = self._current + 1
        with self._lock:
            self._board.rest()
            self._current = -1
            closures, self._closures, self._works = self._closures, [], []
        self._flush_reports()
        return closures

    def clear(self) -> None:
        """Nothing is held: what was run has been settled."""
        with self._lock:
            self._hold([])

    def _hold(self, works: list[Work]) -> None:
        """What this process would leave behind if it died: the batch, and what it owes."""
        self._board.hold([Item(w.id, w.attempt, w.token, w.spec.timeout) for w in [*works, *self._owed]])

    # Signals of running handlers (engine.context.Signals).

    def stop_asked(self) -> str | None:
        """Why the running handler is to stop."""
        return self._board.stop_asked()

    def report(self, work: Work, **what: Any) -> None:
        """Keeps what a handler says of itself until the watcher writes it, at most about once a second.

        Calls to the outside it writes at once.
        """
        with self._lock:
            kept = self._reports.setdefault(work.fence, {})
            for name in ("log", "external"):  # one a line
                if name in what and name in kept:
                    what[name] = f"{kept[name]}\n{what[name]}"
            kept.update(what)
        if "external" in what:
            # At once, beside the handler: the call may be the one that kills this process.
            self._report_at = 0.0
            self._wake.set()

    # The watching thread.

    def _watch(self) -> None:
        while True:
            self._wake.wait(_TICK)
            self._wake.clear()
            try:
                if self._current >= 0 and time.monotonic() - self._begun_at > PATIENCE:
                    self._unburden()
                if self._owed and time.monotonic() >= self._pay_at:
                    self._pay()
                if self._reports and time.monotonic() - self._report_at >= 1.0:
                    self._flush_reports()
            except Exception:
                log.exception("watching over the batch failed; tried again at the next tick")

    def _unburden(self) -> None:
        """The current item takes long: settles the finished ones before it and gives back those after it."""
        with self._lock:
            current = self._current
            if current < 0 or time.monotonic() - self._begun_at <= PATIENCE or len(self._works) == 1:
                return
            if self._closures:
                close_attempts(self._watch_connect(), self._closures)
                self._closures = []
            self._owed += self._works[current + 1 :]
            self._works, self._current = [self._works[current]], 0
            timeout = self._works[0].spec.timeout
            self._hold(self._works)
            self._board.begin(0, max(timeout - (time.monotonic() - self._begun_at), 0.001))

    def _pay(self) -> None:
        """Gives back what was taken out of the batch. An answer may be lost after the commit, so it is asked again;
        the fences see to it that nothing is given back twice. A run that cannot be edited holds up no other.
        """
        with self._lock:
            try:
                leases.give_back(self._watch_connect(), [w.fence for w in self._owed])
                self._owed = []
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self._pay_at = time.monotonic() + 0.5
                raise
            except Exception:
                self._pay_at = time.monotonic() + 1.0
                log.exception("%s steps could not be given back at once; tried one by one", len(self._owed))
                self._owed = [w for w in self._owed if not self._given_back(w)]

    def _given_back(self, work: Work) -> bool:
        try:
            leases.give_back(self._watch_connect(), [work.fence])
        except Exception as problem:
            log.warning("%s of run %s could not be given back: %s", work.step, work.run_id, problem)
            return False
        return True

    def _flush_reports(self) -> None:
        with self._lock:
            taken, self._reports = self._reports, {}
            self._report_at = time.monotonic()
        if taken:
            try:
                reports.write(self._watch_connect(), taken)
            except psycopg.Error as problem:
                log.warning("progress and log lines of %s attempts could not be written: %s", len(taken), problem)
