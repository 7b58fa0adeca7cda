"""One handler, ``act``, and one compensation, ``undo``; what they do comes from the run's input.

``{"do": {"a": "fail:2", "f/3": "kill", "undo:a": "always_fail", "*": "ok"}}``: looked up as ``step/shard``, then
``step``, then ``*``. Several verbs may follow one another (``"sleep:0.1; fail:1"``). ``{"emit": value}`` is returned.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from django.db import connection

from orchestrator.sdk import Fail, Retry, Skip, compensation, step, submit
from tests.harness import ledger


class Broken(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def _fail(ctx: Any, argument: str) -> None:
    if ctx.attempt <= int(argument):
        raise RuntimeError(f"attempt {ctx.attempt} of {argument} fails")


def _always_fail(ctx: Any, argument: str) -> None:
    raise RuntimeError(argument or "always fails")


def _fail_until(ctx: Any, argument: str) -> None:
    if not _is_open(argument):
        raise RuntimeError(f"{argument} is not mended")


def _fatal(ctx: Any, argument: str) -> None:
    raise Fail(argument or "cannot ever work")


def _skip(ctx: Any, argument: str) -> None:
    raise Skip(argument or "nothing to do")


def _retry(ctx: Any, argument: str) -> None:
    """``retry:5``: come back in 5 s, once."""
    if ctx.attempt == 1:
        raise Retry(after=float(argument))


def _sleep(ctx: Any, argument: str) -> None:
    time.sleep(float(argument))


def _coop(ctx: Any, argument: str) -> None:
    end = time.monotonic() + float(argument)
    while time.monotonic() < end:
        ctx.check_cancelled()
        time.sleep(0.01)


def _hold(ctx: Any, argument: str) -> None:
    """Until the gate is open, deaf to everything."""
    while not _is_open(argument):
        time.sleep(0.01)


def _hold1(ctx: Any, argument: str) -> None:
    """The same, on the first attempt only."""
    if ctx.attempt == 1:
        _hold(ctx, argument)


def _coop_hold(ctx: Any, argument: str) -> None:
    """Until the gate is open, or the run is to stop."""
    while not _is_open(argument):
        ctx.check_cancelled()
        time.sleep(0.01)


def _meet(ctx: Any, argument: str) -> None:
    """At a common instant: seconds since the epoch."""
    time.sleep(max(0.0, float(argument) - time.time()))


def _kill(ctx: Any, argument: str) -> None:
    """``kill``: always; ``kill:2``: on the first two attempts."""
    if not argument or ctx.attempt <= int(argument):
        os.kill(os.getpid(), signal.SIGKILL)


def _leave(ctx: Any, argument: str) -> None:
    raise SystemExit(3)


def _swallow(ctx: Any, argument: str) -> None:
    """A loop whose broad ``except`` catches whatever it can."""
    end = time.monotonic() + float(argument)
    while time.monotonic() < end:
        try:
            time.sleep(0.02)
        except BaseException:
            continue


def _swallow_once(ctx: Any, argument: str) -> None:
    """Catches the alarm and returns as if nothing had happened."""
    try:
        time.sleep(float(argument))
    except BaseException:
        return


def _c_call(ctx: Any, argument: str) -> None:
    """One call into C that no Python signal handler interrupts."""
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(float(argument) * 2_000_000))


def _once(ctx: Any, argument: str) -> None:
    """A step that is not idempotent: the second call of the same key is an error."""
    path = ledger.folder() / f"once-{ctx.idempotency_key}"
    path.touch(exist_ok=False)


def _nul_error(ctx: Any, argument: str) -> None:
    raise RuntimeError("a\x00b \ud800 c")


def _broken_str(ctx: Any, argument: str) -> None:
    raise Broken


def _huge_error(ctx: Any, argument: str) -> None:
    raise RuntimeError("x" * 5_000_000)


def _huge_traceback(ctx: Any, argument: str) -> None:
    """What is said of the error is five megabytes, its message is not."""
    problem = RuntimeError("short")
    problem.add_note("n" * 5_000_000)
    raise problem


def _recurse(ctx: Any, argument: str) -> None:
    """The deepest traceback there is."""
    _recurse(ctx, argument)


def _check(ctx: Any, argument: str) -> None:
    ctx.check_cancelled()


def _cut(ctx: Any, argument: str) -> None:
    """The database ends the worker's connection, once."""
    if ctx.attempt == 1:
        pid = ctx._connect().info.backend_pid
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])


def _read(ctx: Any, argument: str) -> None:
    """Reads from the record without end, so that an alarm fires in the middle of a statement."""
    end = time.monotonic() + float(argument)
    while time.monotonic() < end:
        ctx.failures("f")


def _abort(ctx: Any, argument: str) -> None:
    """Leaves Django's connection in a transaction that has failed."""
    connection.set_autocommit(False)
    with contextlib.suppress(Exception), connection.cursor() as cursor:
        cursor.execute("SELECT 1/0")


def _submit(ctx: Any, argument: str) -> None:
    """``submit:3``: as many children."""
    for i in range(int(argument)):
        submit("kit-solo", f"{ctx.subject_id}/{i}", {"do": ctx.input.get("child", {})})


def _detach(ctx: Any, argument: str) -> None:
    submit("kit-solo", "free", {"do": ctx.input.get("child", {})}, detach=True)


def _extend(ctx: Any, argument: str) -> None:
    """The run is given another hour meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE workflow_runs SET deadline_at = deadline_at + interval '1 hour' WHERE id = %s", [ctx.run_id]
        )


def _external(ctx: Any, argument: str) -> None:
    ctx.external(argument)


def _ok(ctx: Any, argument: str) -> None:
    """Nothing."""


def _nested(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


_OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "echo": lambda ctx: ctx.item,
    "nul": lambda ctx: "a\x00b",
    "nul_key": lambda ctx: {"k\x00": 1},
    "surrogate": lambda ctx: "\ud800",
    "nan": lambda ctx: float("nan"),
    "set": lambda ctx: {1, 2},
    "by_attempt": lambda ctx: ctx.input["by"][min(ctx.attempt, len(ctx.input["by"])) - 1],
    "key": lambda ctx: ctx.idempotency_key,
    "failures": lambda ctx: ctx.failures("f"),
    "joined": lambda ctx: ctx.output("f"),
    "big": lambda ctx: "x" * 100_000,
    "sized": lambda ctx: "x" * (ctx.input["n"] - 2),  # so many bytes as JSON
    "deep": lambda ctx: _nested(ctx.input["n"]),
    "numbers": lambda ctx: list(range(ctx.input["n"])),
    "count": lambda ctx: len(ctx.output("f")),
}
_VERBS = {
    name.removeprefix("_"): value
    for name, value in list(globals().items())
    if name.startswith("_") and callable(value) and getattr(value, "__module__", "") == __name__ and name != "_is_open"
}


def _is_open(gate: str) -> bool:
    return (ledger.folder() / f"gate-{gate}").exists()


def _perform(ctx: Any) -> Any:
    do = ctx.input.get("do", {})
    wanted = do.get(f"{ctx.step}/{ctx.shard}", do.get(ctx.step, do.get("*", "ok")))
    if isinstance(wanted, dict):
        return wanted["emit"]
    output = None
    for part in wanted.split(";"):
        verb, _, argument = part.strip().partition(":")
        if verb in _OUTPUTS:
            output = _OUTPUTS[verb](ctx)
        else:
            _VERBS[verb](ctx, argument)
    return output


@step("act")
def act(ctx: Any) -> Any:
    """Does what the input says of this step or shard."""
    ledger.write(ctx, "start")
    output = _perform(ctx)
    ledger.write(ctx, "end")
    return output


@compensation("undo")
def undo(ctx: Any) -> Any:
    """Undoes, as the input says of this compensation."""
    ledger.write(ctx, "undo", [ctx.completed, ctx.outcome])
    output = _perform(ctx)
    ledger.write(ctx, "undone")
    return output


@step("noop")
def noop(ctx: Any) -> None:
    """Leaves no trace, for tests of throughput."""


@step("grow")
def grow(ctx: Any) -> list[str]:
    """Submits children from threads: those that got the step's context, then one that did not.

    A child whose subject is shorter than ``depth`` letters does the same.
    """
    ledger.write(ctx, "start")
    depth = ctx.input.get("depth", 1)
    if len(ctx.subject_id) > depth:
        return []
    workflow = "kit-grow" if len(ctx.subject_id) < depth else "kit-solo"
    child = ctx.input.get("child", {})
    given = {"do": child, "child": child, "depth": depth, "width": ctx.input.get("width", 3)}
    with ThreadPoolExecutor(3) as pool:
        contexts = [(name, copy_context()) for name in "xyz"[: ctx.input.get("width", 3)]]
        runs = [pool.submit(c.run, submit, workflow, ctx.subject_id + name, given) for name, c in contexts]
        made = [str(run.result()) for run in runs]
        made.append(str(pool.submit(submit, "kit-solo", "alone", {"do": {}}, idempotency_key="alone").result()))
    _perform(ctx)
    ledger.write(ctx, "end")
    return made
