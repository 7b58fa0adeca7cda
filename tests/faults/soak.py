"""A soak: runs of every shape while workers, dispatchers, Redis and database connections are lost at random.

All randomness comes from one seed. Everything that a fault can interrupt is interrupted, and at the end every run must
have ended as it was meant to, every join have been called once for what it joins, and the doctor find nothing.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psutil
from django.db import connection

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict
from orchestrator.core.states import RUN_TERMINAL
from orchestrator.engine import operate
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor import INVARIANTS, Scope, examine
from orchestrator.engine.submit import submit
from orchestrator.models import Attempt, Outbox, Run, Step
from orchestrator.transport import doctor
from tests.harness.ledger import Entry
from tests.harness.processes import Process
from tests.harness.wait import wait_until

EDITOR = Actor("eda", "operator", frozenset({"editors"}))
#: Runs on their way at any time.
IN_FLIGHT = 40
#: What no moment, however bad, may show; the other invariants allow for the time a fault may go unnoticed.
ALWAYS = [i for i in INVARIANTS if i.name in ("pending", "fan_outs", "node_states", "topics", "locks", "ended")]
#: How often each fault is chosen, relative to the others.
FAULTS = {
    "process": 8,
    "redis": 4,
    "connections": 4,
    "tickets": 3,
    "dispatcher": 2,
    "tree": 2,
    "supervisor": 1,
    "pause": 1,
}
_CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class Soak:
    """``go`` feeds and disturbs for so many seconds; ``settle`` waits for the end; ``problems`` judges."""

    def __init__(self, world: Any, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.meant: dict[UUID, set[str]] = {}
        self.wrong: list[str] = []
        self.repeated = 0
        self.workers = [world.worker(2), world.worker(2)]
        self.dispatchers = [world.live.start_dispatcher(), world.live.start_dispatcher()]
        self._paused: tuple[float, Process] | None = None

    # Work.

    def feed(self) -> None:
        """Starts runs until enough are on their way."""
        missing = IN_FLIGHT - Run.objects.exclude(state__in=RUN_TERMINAL).count()
        for _ in range(max(0, missing)):
            self._submit()

    def _submit(self) -> None:
        shape = self.random.choice(
            ["chain", "static", "dynamic", "window", "diamond", "saga", "topic", "lock", "child", "timer", "approval"]
        )
        do: dict[str, Any] = {"*": f"sleep:{self.random.choice([0, 0, 0.01, 0.05, 0.3])}"}
        meant = {"done"}
        if shape in ("dynamic", "window", "diamond", "topic"):
            do["l"] = {"emit": list(range(self.random.choice([0, 1, 2, 7, 15])))}
        if shape == "saga" and self.random.random() < 0.7:
            do[self.random.choice(["f/2", "b", "c"])] = "fatal"
            meant = {"failed"}
        elif shape in ("chain", "child", "lock") and self.random.random() < 0.3:
            do["b"] = "fail:1"
        subject = f"s{self.random.randrange(5)}" if shape == "lock" else f"s{len(self.meant)}"
        run_id = submit(f"soak-{shape}", subject, {"do": do, "child": {"*": "sleep:0.01"}})
        self.meant[run_id] = meant
        if self.random.random() < 0.05:
            with contextlib.suppress(Conflict):
                operate.cancel_run(run_id, EDITOR, "soak")
            self.meant[run_id] = meant | {"cancelled"}

    def approve(self) -> None:
        """What waits for approval is approved."""
        for pk in Step.objects.filter(waiting_for="approval").values_list("pk", flat=True):
            with contextlib.suppress(Conflict):
                operate.approve_step(pk, EDITOR, "soak")

    def look(self) -> None:
        """What must hold at every moment."""
        found = examine(caller_connection(), Scope(), ALWAYS)
        self.wrong += [f"meanwhile, {b.invariant} {b.id}: {b.detail}" for b in found.broken]

    # Faults.

    def disturb(self) -> None:
        """One fault, chosen at random."""
        name = self.random.choices(list(FAULTS), list(FAULTS.values()))[0]
        fault: Callable[[], bool] = getattr(self, f"_{name}")
        if fault():
            self.faults[name] += 1

    def _process(self) -> bool:
        """A worker process is killed, in a handler or not."""
        found = [child for worker in self.workers for child in worker.children()]
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self.random.choice(found).kill()
        return True

    def _replace(self, group: list[Process], kill: Callable[[Process], None], start: Callable[[], Process]) -> bool:
        index = self.random.randrange(len(group))
        if self._paused and self._paused[1] is group[index]:
            return False
        kill(group[index])
        group[index] = start()
        return True

    def _tree(self) -> bool:
        """A machine is lost."""
        return self._replace(self.workers, Process.kill_all, lambda: self.world.worker(2))

    def _supervisor(self) -> bool:
        """Only the process above the worker processes."""
        return self._replace(self.workers, Process.kill, lambda: self.world.worker(2))

    def _dispatcher(self) -> bool:
        return self._replace(self.dispatchers, Process.kill_all, self.world.live.start_dispatcher)

    def _redis(self) -> bool:
        """All that Redis holds is gone."""
        return bool(self.world.live.redis.flushdb())

    def _tickets(self) -> bool:
        """Some tickets are lost, others are delivered twice."""
        taken = self.world.live.redis.lpop("rq:queue:default", self.random.randrange(1, 6)) or []
        for raw in taken[1:]:
            self.world.live.redis.rpush("rq:queue:default", raw, raw)
        return bool(taken)

    def _connections(self) -> bool:
        """Every connection to the database but that of the test is ended."""
        with connection.cursor() as cursor:
            cursor.execute(_CUT)
            return bool(cursor.fetchone()[0])

    def _pause(self) -> bool:
        """A machine hangs for longer than its lease, and comes back."""
        if self._paused:
            return False
        worker = self.random.choice(self.workers)
        worker.pause()
        self._paused = (time.monotonic() + self.random.uniform(1, 5), worker)
        return True

    def _resume(self, *, now: bool = False) -> None:
        if self._paused and (now or time.monotonic() > self._paused[0]):
            self._paused[1].resume()
            self._paused = None

    # The course of it.

    def go(self, seconds: float) -> None:
        """Feeds and disturbs."""
        end = time.monotonic() + seconds
        fault_at = time.monotonic() + 3
        look_at = time.monotonic() + 5
        while (now := time.monotonic()) < end:
            self.feed()
            self.approve()
            self._resume()
            if now >= fault_at:
                self.disturb()
                fault_at = now + self.random.uniform(0.2, 1.8)
            if now >= look_at:
                self.look()
                look_at = now + 5
            time.sleep(0.1)

    def settle(self, timeout: float) -> None:
        """No more faults: everything ends, and nothing is left on its way."""
        self._resume(now=True)
        open_runs = Run.objects.exclude(state__in=RUN_TERMINAL)

        def ended() -> bool:
            self.approve()
            return not open_runs.exists()

        def why() -> str:
            return "\n".join(
                f"{pk} {self.world.live.describe(pk)}" for pk in open_runs.values_list("pk", flat=True)[:5]
            )

        wait_until(ended, timeout, interval=0.2, why=why)
        wait_until(lambda: not Outbox.objects.exists(), 15)

    def report(self) -> str:
        """What was survived, in a line."""
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        states = Counter(Run.objects.values_list("state", flat=True))
        said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return (
            f"survived {sum(self.faults.values())} faults ({kinds}): {Run.objects.count()} runs ({said}), "
            f"{Step.objects.count()} steps, {Attempt.objects.filter(cause='worker_lost').count()} attempts lost and "
            f"tried again, {self.repeated} calls repeated because their end had not been recorded"
        )

    # Judging.

    def problems(self) -> list[str]:
        """Everything that is wrong at the end."""
        found = doctor.examine(caller_connection(), Scope.everything())
        said = [f"doctor, {b.invariant} {b.id}: {b.detail}" for b in found.broken]
        said += [f"doctor had no time for {name}" for name in found.unchecked]
        return [*self.wrong, *said, *self._lost(), *self._doubled()]

    def _lost(self) -> list[str]:
        runs = {run.pk: run for run in Run.objects.all()}
        said = []
        for pk, meant in self.meant.items():
            run = runs.get(pk)
            if run is None or run.state not in meant:
                said.append(f"run {pk} was to be {meant}: {self.world.live.describe(pk) if run else 'gone'}")
            elif run.compensation == "partial":
                said.append(f"run {pk} is not undone")
        return said

    def _doubled(self) -> list[str]:
        """By the ledger: an attempt was begun once; a step that is done had an effect; a join waited for all it joins.

        What a process had finished and not yet recorded when it was killed runs once more with no attempt spent.
        """
        begun: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
        effects: Counter[tuple[str, str, str]] = Counter()
        starts: dict[tuple[str, str], float] = {}
        ends: dict[str, dict[str, float]] = defaultdict(dict)
        for e in self.world.ledger.entries():
            row = (e.run, e.step, e.shard)
            if e.event in ("start", "undo"):
                begun[*row, e.key, str(e.attempt)].append(e)
                starts.setdefault((e.run, e.step), e.at)
            else:
                effects[row] += 1
                if e.step in ("f", "g"):
                    ends[e.run].setdefault(f"{e.step}/{e.shard}", e.at)
        said = []
        again: Counter[tuple[str, ...]] = Counter()
        for key, calls in begun.items():
            again[key[:3]] += len(calls) - 1
            if len({e.pid for e in calls}) < len(calls) or any(_lives(e) for e in calls[:-1]):
                said.append(f"{key} was begun {len(calls)} times, and not for the death of a process")
        self.repeated = again.total()
        for step in Step.objects.exclude(attempt=0).iterator():
            row = (str(step.run_id), step.step, step.shard)
            if (step.state == "done" and not effects[row]) or effects[row] > step.attempt + again[row]:
                said.append(f"run {row}: {step.state} with {step.attempt} attempts and {effects[row]} effects")
        for (run, name), at in starts.items():
            if name in ("j", "k") and at < max(ends[run].values(), default=0):
                said.append(f"run {run}: {name} began before its fan-out had ended")
        return said


def _lives(call: Entry) -> bool:
    """Whether the process that made a call is still there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(call.pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() < call.at
    return False
