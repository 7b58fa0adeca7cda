"""Calling one handler: its timeout, its exceptions, its output."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from django.conf import settings
from django.db import connections

from orchestrator.core.lifecycle import DONE, Ending
from orchestrator.core.outcomes import Cancelled
from orchestrator.core.states import Cause, Kind, StepState
from orchestrator.core.text import NotStorable, to_json
from orchestrator.definitions import registry
from orchestrator.definitions.errors import HandlerMissing
from orchestrator.engine.ambient import Ambient, current
from orchestrator.engine.artifacts import artifact_store
from orchestrator.engine.context import Signals, StepContext, make_context
from orchestrator.engine.db import Connection
from orchestrator.engine.transitions import Closure
from orchestrator.engine.work import Work, closure, failure, from_exception

log = logging.getLogger("switchyard.worker")
OUTPUT_LIMIT = 64 * 1024 * 1024


class Around(Protocol):
    """What may stand around handlers: the faults of a test (``orchestrator.testing.injection``)."""

    def call(self, handler: registry.Handler, ctx: StepContext, work: Work) -> Any: ...  # noqa: D102

    def ended(self, work: Work, closure: Closure, connect: Callable[[], Connection]) -> None: ...  # noqa: D102


#: None but in worker processes under test.
around: Around | None = None


class TimedOut(BaseException):
    """Raised by the alarm inside a handler. Not an Exception, so that a broad ``except Exception`` lets it pass."""


class Alarm:
    """SIGALRM around a handler, and whether it has fired: a handler that swallows it has timed out all the same."""

    def __init__(self) -> None:
        self.fired = False
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_alarm(self, signum: int, frame: FrameType | None) -> None:
        self.fired = True
        raise TimedOut

    def arm(self, seconds: float) -> None:
        """Starts the clock of one handler."""
        self.fired = False
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))

    def disarm(self) -> None:
        """Stops the clock."""
        signal.setitimer(signal.ITIMER_REAL, 0)


def execute(work: Work, connect: Callable[[], Connection], signals: Signals, alarm: Alarm) -> Closure:
    """Runs the handler of a claimed row and says how its attempt ended. Never raises."""
    ended = _execute(work, connect, signals, alarm)
    if around is not None:
        around.ended(work, ended, connect)
    return ended


def _execute(work: Work, connect: Callable[[], Connection], signals: Signals, alarm: Alarm) -> Closure:
    spec = work.spec
    try:
        handler = registry.resolve(work.plan.workflow, spec.handler, work.kind)
    except HandlerMissing as missing:
        return failure(work, Cause.HANDLER_MISSING, {"type": "HandlerMissing", "message": str(missing)})
    ctx = make_context(work, connect, signals)
    # What a step's handler submits is its child; an undo has none.
    ambient = Ambient(work.run_id, work.id, work.generation) if work.kind == Kind.STEP else None
    token = current.set(ambient)
    try:
        try:
            alarm.arm(spec.timeout)
            output = handler(ctx) if around is None else around.call(handler, ctx, work)
        finally:
            alarm.disarm()
            current.reset(token)
    except TimedOut:
        return timed_out(work)
    except (Exception, Cancelled) as exc:
        return timed_out(work) if alarm.fired else from_exception(work, exc, cancel_seen=ctx.cancel_seen)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as exc:
        return from_exception(work, RuntimeError(f"the handler raised {type(exc).__name__}: {exc}"), cancel_seen=False)
    finally:
        _leave_clean()
    if alarm.fired:
        return timed_out(work)
    return _finish(work, output, _WAIT_FOR_CHILDREN if ambient and ambient.submitted else DONE)


_WAIT_FOR_CHILDREN = Ending(StepState.WAITING)


def timed_out(work: Work) -> Closure:
    """The end of an attempt that took too long."""
    return failure(
        work, Cause.TIMEOUT, {"type": "Timeout", "message": f"no end within {work.spec.timeout:g} s, its timeout"}
    )


def _finish(work: Work, output: Any, ending: Ending) -> Closure:
    if output is None:
        return closure(work, ending)
    try:
        text = to_json(output, "the output")
        size = len(text) if text.isascii() else len(text.encode())
        if size <= settings.ORCHESTRATOR.inline_bytes:
            return closure(work, ending, output=text)
        if size > OUTPUT_LIMIT:
            raise NotStorable(f"the output is {size:,} bytes; {OUTPUT_LIMIT:,} is the most. Put it into ctx.artifacts")
        return closure(work, ending, output_ref=artifact_store().put_output(work.run_id, work.step, work.shard, text))
    except NotStorable as problem:
        return failure(work, Cause.INVALID_OUTPUT, {"type": "InvalidOutput", "message": str(problem)})
    except Exception as exc:  # the artifact storage refused
        return from_exception(work, exc, cancel_seen=False)


def _leave_clean() -> None:
    """Closes Django connections that a handler left inside a transaction; the next handler gets a fresh one."""
    for conn in connections.all(initialized_only=True):
        if conn.in_atomic_block or (conn.connection is not None and not conn.get_autocommit()):
            log.warning("a handler left a database transaction open; its connection is closed")
            conn.close()
