"""The supervisor of worker processes: forks them, keeps their leases, kills what must end, closes what they cannot.

It runs no handler itself, so nothing that a handler does can keep it from noticing: a process that dies is seen at once
(its pipe closes) and exactly the attempts that it had begun are closed; one that overruns its timeout or ignores a
cancel past the grace is killed. Processes die with their supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType

import psycopg
from django.conf import settings
from django.db import connections
from redis.exceptions import RedisError

from orchestrator.core.states import Cause
from orchestrator.engine import leases
from orchestrator.engine.db import Connection, connect
from orchestrator.engine.transitions import Holder
from orchestrator.transport.board import Board, Item
from orchestrator.transport.broker import connection as redis_connection
from orchestrator.transport.worker import TicketWorker

log = logging.getLogger("switchyard.pool")
#: Past its timeout a handler has this long to see the alarm; then its process is killed.
TIMEOUT_GRACE = 1.0
_PR_SET_PDEATHSIG = 1
#: A process that has lived this long did not fail to begin.
_SETTLED = 5.0


@dataclass
class Child:
    """One worker process. ``pipe`` reads end-of-file when it is gone."""

    pid: int
    name: str
    lease_id: int
    board: Board
    pipe: int
    kill_cause: Cause | None = None
    killed_item: int | None = None
    born_at: float = field(default_factory=time.monotonic)


class Pool:
    """Runs ``processes`` worker processes on ``queues`` until stopped."""

    def __init__(self, queues: Sequence[str], processes: int, name: str | None = None) -> None:
        self._queues = list(queues)
        self._wanted = processes
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._children: dict[int, Child] = {}
        self._conn: Connection | None = None
        self._stop = 0
        self._serial = 0
        self._renew_at = 0.0
        self._watch_at = 0.0
        self._spawn_at = 0.0
        self._early_deaths = 0

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT (warm: running handlers finish; a second signal ends them)."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        while not self._stop or self._children:
            try:
                self._step()
            except (psycopg.OperationalError, psycopg.InterfaceError) as problem:
                log.warning("database not reachable, tried again in a second: %s", problem)
                self._conn = None
                time.sleep(1)
            except Exception:
                log.exception("supervising the worker processes failed; tried again in a second")
                time.sleep(1)

    def _step(self) -> None:
        if not self._stop:
            self._spawn()
        self._wait(0.1)
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + settings.ORCHESTRATOR.lease_seconds / 4
            self._renew()
        self._end_overdue(now)
        if now >= self._watch_at:
            self._watch_at = now + 0.5
            self._pass_on_stops()

    def _db(self) -> Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(f"{self._name} supervisor")
        return self._conn

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._stop += 1
        for child in list(self._children.values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM if self._stop == 1 else signal.SIGKILL)

    # Starting and ending processes.

    def _spawn(self) -> None:
        while len(self._children) < self._wanted and time.monotonic() >= self._spawn_at and not self._stop:
            self._serial += 1
            name = f"{self._name}.{self._serial}"
            board = Board(settings.ORCHESTRATOR.max_batch * 2)
            board.lease(time.monotonic() + settings.ORCHESTRATOR.lease_seconds)
            lease_id = leases.register(self._db(), uuid.uuid4(), name, self._queues)
            connections.close_all()
            reading, writing = os.pipe()
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                self._be_worker(name, lease_id, board)
            os.close(writing)
            leases.set_pid(self._db(), lease_id, pid)
            self._children[pid] = Child(pid, name, lease_id, board, reading)

    def _be_worker(self, name: str, lease_id: int, board: Board) -> None:
        """The child's side of the fork; never returns."""
        code = 1
        try:
            _die_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._conn = None
            self._children = {}
            worker = TicketWorker(self._queues, redis_connection(), Holder(lease_id, name), board)
            worker.work(logging_level="WARNING")
            code = 0
        except RedisError as problem:
            log.warning("worker process %s ends, Redis is not reachable: %s", name, problem)
        except BaseException:
            log.exception("worker process %s ends", name)
        finally:
            logging.shutdown()
            os._exit(code)

    def _wait(self, seconds: float) -> None:
        pipes = {child.pipe: child for child in self._children.values()}
        try:
            ready, _, _ = select.select(list(pipes), [], [], seconds)
        except InterruptedError:
            return
        for pipe in ready:
            self._bury(pipes[pipe])

    def _bury(self, child: Child) -> None:
        """A process is gone: closes what it had begun, gives back what it had not, and lets its lease go."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, 0)
        held = child.board.read()
        if held.items:
            count = len(held.items)
            log.warning("worker process %s died holding %s attempt%s", child.name, count, "" if count == 1 else "s")
        if held.running:
            self._close(child, held.running)
        # The death is put down to the item that ran. Those that had ended are not to blame; they run once more.
        leases.give_back(self._db(), [(i.id, i.attempt, i.token) for i in [*held.ended, *held.not_begun]])
        leases.end(self._db(), child.lease_id)
        child.board.clear()
        os.close(child.pipe)
        del self._children[child.pid]
        self._early_deaths = 0 if held.items or time.monotonic() - child.born_at > _SETTLED else self._early_deaths + 1
        # One that cannot even begin (Redis is gone) is started again with growing waits, 5 s at most.
        self._spawn_at = time.monotonic() + min(0.05 * 2 ** min(self._early_deaths, 10), 5.0)

    def _close(self, child: Child, item: Item) -> None:
        cause = child.kill_cause if child.kill_cause and item.id == child.killed_item else Cause.WORKER_LOST
        try:
            leases.close_begun(self._db(), (item.id, item.attempt, item.token), cause, child.name)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception:
            log.exception("step row %s could not be closed; the dispatcher's sweep tries again", item.id)

    # Watching over them.

    def _renew(self) -> None:
        children = list(self._children.values())
        if not children:
            return
        until = time.monotonic() + settings.ORCHESTRATOR.lease_seconds  # noted before, so never later than the record's
        alive = leases.renew(self._db(), [c.lease_id for c in children])
        for child in children:
            if child.lease_id in alive:
                child.board.lease(until)
            else:
                # Paused past its lease: its work has been given to others, and it must not go on with it.
                log.warning("worker process %s has lost its lease; it is replaced", child.name)
                self._kill(child, Cause.WORKER_LOST, None)

    def _end_overdue(self, now: float) -> None:
        for child in list(self._children.values()):
            held = child.board.read()
            if held.running and held.timeout and now - held.begun_at > held.timeout + TIMEOUT_GRACE:
                log.warning("attempt of step row %s overran its timeout; its process is killed", held.running.id)
                self._kill(child, Cause.TIMEOUT, held.running.id)

    def _kill(self, child: Child, cause: Cause, item: int | None) -> None:
        """Ends a process because of one row; if it runs another by now, that one has lost its worker and no more."""
        child.kill_cause, child.killed_item = cause, item
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)

    def _pass_on_stops(self) -> None:
        """Tells handlers of cancelled runs to stop, and kills those that do not within the grace."""
        running = {}
        for child in self._children.values():
            item = child.board.read().running
            if item is not None and child.kill_cause is None:
                running[item.id] = child
        if not running:
            return
        grace = settings.ORCHESTRATOR.cancel_grace_seconds
        for stop in leases.stops_of(self._db(), list(running)):
            child = running[stop.id]
            child.board.ask_stop(stop.id, 3 if stop.forced else 1 if stop.stop == "cancel" else 2)
            running_now = child.board.read().running
            if (stop.forced or stop.seconds > grace) and running_now is not None and running_now.id == stop.id:
                self._kill(child, Cause.CANCELLED, stop.id)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies (Linux); elsewhere the lease does the rest."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
