"""The dispatcher: publishes tickets, fires what is due, recovers what was lost. One leads, others stand by.

Leadership only saves work; everything here is guarded by itself. The loop sleeps on the database's notifications and
polls behind them, so that nothing depends on a notification that did not come.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from types import FrameType

import psycopg
from django.conf import settings
from django.db import close_old_connections
from redis import Redis
from redis.exceptions import RedisError

from orchestrator.engine import beats, bulk_work, children, gates, recover, schedules, waits
from orchestrator.engine.db import Connection, connect, rows, sql
from orchestrator.transport.broker import connection as redis_connection
from orchestrator.transport.reissue import EVERY, Reissuer
from orchestrator.transport.relay import relay
from orchestrator.transport.upkeep import Upkeep

log = logging.getLogger("switchyard.dispatcher")
CHANNEL = "switchyard_outbox"
_IDLE = 0.5
_BUSY = 0.01
_STAY_BUSY = 0.25
#: Seconds that one answer of Redis may take, and after which it is asked again when it did not come.
_REDIS_PATIENCE = 10.0
_REDIS_WAIT = 0.5


class Dispatcher:
    """One dispatcher process. ``run`` serves until stopped; ``background`` duties are repeated while it leads."""

    def __init__(self, background: Sequence[Callable[[], object]] = ()) -> None:
        self._background = background
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._conn: Connection | None = None
        self._client = _patient(redis_connection())
        self._redis_at = 0.0  # monotonic time before which Redis, which did not answer, is let alone
        self._redis_wait = _REDIS_WAIT
        self._stop = False
        self._leads = False
        self._busy_until = 0.0
        sweep = settings.ORCHESTRATOR.sweep_seconds
        reissuer = Reissuer(self._client)
        self._duties: list[tuple[float, Callable[[Connection], object]]] = [
            (0.25, recover.wake_due),
            (0.25, waits.fire_due),
            (0.25, children.start),
            (0.25, children.join),
            (0.25, children.stop),
            (0.5, waits.expire_joins),
            (0.5, recover.start_delayed),
            (min(1.0, sweep), recover.enforce_deadlines),
            (1.0, recover.end_holds),
            (0.5, gates.promote_all),
            (0.25, bulk_work.advance),
            (sweep, recover.reap_lost),
            (1.0, self._if_redis(reissuer.if_emptied)),
            (EVERY, self._if_redis(reissuer.stale)),
            (0.25, self._if_redis(reissuer.lift)),
            (0.5, schedules.fire_due),
            (sweep, lambda conn: rows(conn, sql("fold_rollups"), {"limit": 10_000}) and 0),
            (5.0, Upkeep(self._holder).tick),
        ]
        self._due = [0.0] * len(self._duties)

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        for duty in self._background:
            threading.Thread(target=self._repeat, args=(duty,), daemon=True).start()
        wait = 0.5
        while not self._stop:
            try:
                self._serve()
                wait = 0.5
            except (psycopg.OperationalError, psycopg.InterfaceError) as problem:
                log.warning("the database not reachable, tried again: %s", str(problem).strip())
                self._conn = None
                self._leads = False
                self._pause(wait)
                wait = min(wait * 2, 5.0)
        if self._conn is not None and not self._conn.closed and self._leads:
            beats.resign(self._conn, self._holder)

    def _serve(self) -> None:
        conn = self._db()
        seconds = max(3 * settings.ORCHESTRATOR.sweep_seconds, 3.0)
        beat_at = 0.0
        while not self._stop:
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + min(1.0, seconds / 4)
                self._leads = beats.lead(conn, self._holder, seconds)
            if not self._leads:
                self._pause(0.5)
                continue
            self._relay(conn)
            self._do_duties(conn, time.monotonic())
            self._sleep(conn)

    def _repeat(self, duty: Callable[[], object]) -> None:
        """A duty that may take long (it talks to the outside), in a thread of its own on Django's connection."""
        while not self._stop:
            self._pause(1.0)
            try:
                if self._leads:
                    duty()
            except Exception:
                log.exception("a duty of the dispatcher failed; tried again in a second")
                close_old_connections()

    def _relay(self, conn: Connection) -> None:
        while not self._stop and self._if_redis(lambda conn: relay(conn, self._client))(conn):
            self._busy_until = time.monotonic() + _STAY_BUSY

    def _if_redis(self, duty: Callable[[Connection], int]) -> Callable[[Connection], int]:
        """What needs Redis, left out for growing times while Redis does not answer: deadlines, timers, lost workers
        and cancels need only the database and go on.
        """

        def work(conn: Connection) -> int:
            if time.monotonic() < self._redis_at:
                return 0
            try:
                count = duty(conn)
            except RedisError as problem:
                log.warning("Redis not reachable, tried again in %g s: %s", self._redis_wait, str(problem).strip())
                self._redis_at = time.monotonic() + self._redis_wait
                self._redis_wait = min(self._redis_wait * 2, 5.0)
                return 0
            self._redis_wait = _REDIS_WAIT
            return count

        return work

    def _do_duties(self, conn: Connection, now: float) -> None:
        for i, (every, duty) in enumerate(self._duties):
            if now >= self._due[i]:
                self._due[i] = now + every
                try:
                    if duty(conn):
                        self._relay(conn)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    raise
                except Exception:
                    log.exception("a duty of the dispatcher failed; the next pass tries again")

    def _sleep(self, conn: Connection) -> None:
        """Until there is something to publish or a duty is due."""
        now = time.monotonic()
        wait = min([_IDLE, *(due - now for due in self._due)])
        if now < self._busy_until:
            wait = min(wait, _BUSY)
        for _ in conn.notifies(timeout=max(wait, 0.001), stop_after=1):
            self._busy_until = time.monotonic() + _STAY_BUSY

    def _db(self) -> Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect("switchyard dispatcher")
            self._conn.execute(f"LISTEN {CHANNEL}")
        return self._conn

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._stop = True

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop and time.monotonic() < until:
            time.sleep(0.05)


def _patient(client: Redis) -> Redis:
    """A Redis that hangs must not hang the dispatcher."""
    client.connection_pool.connection_kwargs.update(socket_timeout=_REDIS_PATIENCE, socket_connect_timeout=3.0)
    return client
