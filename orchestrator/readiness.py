"""Whether this process could do its work now: the database, Redis, and a dispatcher seen lately.

Each part is asked in a thread of its own and given up after a moment, so that the answer comes in time even where a
server is stopped but still accepts connections. At most one thread a part waits for a server that does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.conf import settings
from psycopg import Error

from orchestrator.engine.db import connect
from orchestrator.transport.health import ping

T = TypeVar("T")
#: Seconds for the whole answer.
PATIENCE = 1.5


@dataclass(frozen=True)
class Part:
    """One thing that is needed. ``detail`` says what is wrong, in words that a stranger may read."""

    name: str
    ok: bool
    detail: str = "ok"


class Bounded(Generic[T]):
    """A question asked in a thread, one at a time: whoever asks meanwhile waits for the same answer."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer: T | BaseException | None = None

    def start(self) -> threading.Thread:
        """Asks, unless the last time is still unanswered."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._answer = None
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            return self._thread

    def ask(self, until: float) -> T:
        """The answer, if it comes before ``until`` (monotonic seconds).

        Raises:
            TimeoutError: it did not come.
            BaseException: what the question raised.
        """
        thread = self.start()
        thread.join(max(0.0, until - time.monotonic()))
        answer = self._answer
        if thread.is_alive() or answer is None:
            raise TimeoutError("no answer in time")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except BaseException as error:  # handed to whoever asked
            self._answer = error


def _database() -> tuple[bool, float | None]:
    """(is it read-only, seconds since the dispatcher's last beat)."""
    conn = connect("switchyard-ready")
    try:
        row = conn.execute(
            """SELECT current_setting('transaction_read_only') = 'on' AS read_only,
                      (SELECT extract(epoch FROM now() - max(beat_at))::float8
                       FROM workflow_beats WHERE name = 'dispatcher') AS age"""
        ).fetchone()
        assert row is not None
        return bool(row.read_only), row.age
    finally:
        conn.close()


_DATABASE = Bounded(_database)
_REDIS = Bounded(lambda: ping(PATIENCE) or "")


def check(patience: float = PATIENCE) -> list[Part]:
    """The parts, in ``patience`` seconds at most."""
    until = time.monotonic() + patience
    for question in (_DATABASE, _REDIS):
        question.start()
    return [*_database_parts(until), _redis_part(until)]


def _database_parts(until: float) -> list[Part]:
    try:
        read_only, age = _DATABASE.ask(until)
    except (Error, OSError) as error:  # a timeout is an OSError
        detail = "no answer in time" if isinstance(error, TimeoutError) else "cannot be read"
        return [Part("database", ok=False, detail=detail), Part("dispatcher", ok=False, detail="unknown")]
    database = Part("database", ok=False, detail="read-only") if read_only else Part("database", ok=True)
    return [database, _dispatcher_part(age)]


def _dispatcher_part(age: float | None) -> Part:
    if age is None:
        return Part("dispatcher", ok=False, detail="never seen")
    if age > max(3 * settings.ORCHESTRATOR.sweep_seconds, 3.0):
        return Part("dispatcher", ok=False, detail=f"last seen {age:.0f} s ago")
    return Part("dispatcher", ok=True)


def _redis_part(until: float) -> Part:
    try:
        problem = _REDIS.ask(until)
    except Exception as error:  # the client has many kinds of trouble; all mean the same here
        problem = str(error) or "error"
    return Part("redis", ok=False, detail="cannot be reached") if problem else Part("redis", ok=True)
