"""Faults inside worker processes. Put in place by the ``worker`` command where ORCHESTRATOR_FAULT_PLAN is set.

Stands around every handler (``transport.execute.around``): writes the ledger, and does what the plan says of the
attempt: raises, kills the process, holds it until the run is cancelled, or has its completion delivered twice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from orchestrator.core.errors import Invalid
from orchestrator.core.outcomes import Fail
from orchestrator.engine.claims import Closure
from orchestrator.engine.context import StepContext
from orchestrator.engine.db import Connection
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.work import Work
from orchestrator.testing import faults, ledger
from orchestrator.testing.disposable import require_disposable
from orchestrator.testing.faults import Fault, PlanFile
from orchestrator.testing.ledger import Entry
from orchestrator.testing.statements import after_next_statement
from orchestrator.transport import execute

#: Seconds that a handler is held for its run to be cancelled; then it goes on.
HOLD = 20.0


class Injected(RuntimeError):
    """An error that the fault matrix raised in the place of the handler."""


def install_if_asked() -> bool:
    """Puts faults in place if the environment names a plan. Whether it does.

    Raises:
        Refused: the database is not disposable.
        Invalid: the plan cannot be read.
    """
    path = os.environ.get(faults.VARIABLE)
    if not path:
        return False
    require_disposable(f"a worker with {faults.VARIABLE}")
    try:
        execute.around = Injection(PlanFile(path))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise Invalid(f"environment variable {faults.VARIABLE}: {path!r} is no fault plan: {problem}") from None
    return True


class Injection:
    """What ``transport.execute.around`` is set to."""

    def __init__(self, plan: PlanFile) -> None:
        self._plan = plan

    def call(self, handler: Callable[[Any], Any], ctx: StepContext, work: Work) -> Any:
        """Calls the handler, or what the plan puts in its place."""
        self._plan.read()
        case = self._case(work)
        if case is None:
            return handler(ctx)
        attempt = _Attempt(self._plan, case, work)
        attempt.write("start")
        attempt.before()
        attempt.watch(ctx, sys._getframe())
        try:
            output = handler(ctx)
        except BaseException as problem:
            sys.settrace(None)
            attempt.write("raise", type(problem).__name__)
            raise
        sys.settrace(None)
        attempt.write("end")
        attempt.kill_if(faults.KILL_EXTERNAL)  # the call was the last thing that the handler did
        return output

    def ended(self, work: Work, closure: Closure, connect: Callable[[], Connection]) -> None:
        """The attempt has ended and nothing of it is recorded yet."""
        case = self._case(work)
        if case is None:
            return
        attempt = _Attempt(self._plan, case, work)
        attempt.kill_if(faults.KILL_AFTER)
        if attempt.has(faults.DUPLICATE) or attempt.has(faults.DUPLICATE_FIRST):
            attempt.write("fault", "duplicate")
            attempt.write("closure", [str(closure.run_id), *closure[1:]])
        if attempt.has(faults.DUPLICATE_FIRST):
            close_attempts(connect(), [closure])

    def _case(self, work: Work) -> str | None:
        """The case that a run belongs to; None for others, such as its child runs."""
        if work.plan.definition_id != self._plan.definition or faults.LABEL not in work.labels_text:
            return None
        case = json.loads(work.labels_text).get(faults.LABEL)
        return case if isinstance(case, str) else None


class _Attempt:
    """One attempt and the faults that strike it."""

    def __init__(self, plan: PlanFile, case: str, work: Work) -> None:
        self._plan, self._work, self._case = plan, work, case
        row = (str(work.kind), work.step, work.shard)
        self._faults = [f for f in plan.faults(case) if f.strikes(*row, work.attempt)]
        self._marks: dict[str, int] = {}
        self._reached = False

    def write(self, event: str, note: Any = None) -> None:
        """A line in the ledger."""
        w = self._work
        entry = Entry(
            self._case, str(w.run_id), str(w.kind), w.step, w.shard, w.attempt, event, note, os.getpid()
        )  # fmt: skip
        ledger.append(self._plan.ledger, entry)

    def has(self, what: str) -> Fault | None:
        """The fault of this sort that strikes this attempt."""
        return next((f for f in self._faults if f.what == what), None)

    def before(self) -> None:
        """Faults before the handler is called."""
        if self.has(faults.FAIL):
            self.write("fault", "fail")
            raise Fail("the fault matrix made this step fail for good")
        if self.has(faults.ERROR):
            self.write("fault", "error")
            raise Injected("the fault matrix made this attempt fail")
        if self.has(faults.KILL_BEFORE):
            self.die("kill before the handler")
        if self.has(faults.CANCEL):
            self.write("fault", "cancel")
            self.write("hold")
            self._hold()

    def kill_if(self, what: str) -> None:
        """Kills the process if that is planned here; for a call to the outside only once it was marked."""
        if self.has(what) and (what != faults.KILL_EXTERNAL or self._reached):
            self.die(what)

    def die(self, why: str) -> NoReturn:
        """SIGKILL, as the kernel's out-of-memory killer does it."""
        self.write("fault", why)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def watch(self, ctx: StepContext, outermost: FrameType) -> None:
        """Records what the handler marks, and kills after the call that the plan names."""
        real = ctx.external

        def external(name: str) -> None:
            real(name)
            self.write("external", str(name))
            self._marks[name] = self._marks.get(name, 0) + 1
            fault = self.has(faults.KILL_EXTERNAL)
            if fault and fault.name == name and fault.nth == self._marks[name]:
                self._reached = True
                after_next_statement(sys._getframe(1), outermost, partial(self.die, f"kill after {name}"))

        ctx.external = external  # type: ignore[method-assign]

    def _hold(self) -> None:
        """Until the driver has asked for the cancel, so that it meets a running handler."""
        gate = self._plan.folder / f"go-{self._case}-{self._work.kind}"
        end = time.monotonic() + HOLD
        while not gate.exists() and time.monotonic() < end:
            time.sleep(0.02)
