"""Drives the runs of a fault matrix: submits them, cancels and repeats as their cases ask, and waits for their end.

Waits that the matrix itself causes are cut short: the backoff after an injected failure, and timers and holds of the
definition; approvals are given. Waits that a handler asks for by ``Retry(after=…)`` are kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict
from orchestrator.core.states import RUN_TERMINAL, Kind
from orchestrator.engine.claims import Closure
from orchestrator.engine.db import Connection, connect, put, rows
from orchestrator.engine.operate import approve_step, cancel_run
from orchestrator.engine.plans import Plan
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.submit import submit_many
from orchestrator.testing import faults
from orchestrator.testing.crew import Crew
from orchestrator.testing.ledger import Entry, Reader
from orchestrator.testing.outcome import Case, Outcome
from orchestrator.transport.broker import connection as redis_connection
from orchestrator.transport.tickets import TicketRef, publish

ACTOR = Actor("fault-matrix", "admin")
_TICK = 0.04
_LOOK = 0.25


@dataclass
class _Live:
    """A run under way. ``closures`` are those that a case has delivered more than once."""

    outcome: Outcome
    until: float
    cancelled: bool = False
    closures: list[Closure] | None = None


class Driver:
    """Takes cases through to their end, some at a time."""

    def __init__(
        self, plan: Plan, crew: Crew, folder: Path, subject: str, given: dict[str, Any], at_once: int,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plan, self._crew, self._folder = plan, crew, folder
        self._subject, self._input, self._at_once, self._say = subject, given, at_once, say
        self._conn: Connection = connect("switchyard fault matrix")
        self._client = redis_connection()
        self._reader = Reader(folder / "ledger.jsonl")
        self._known: dict[str, tuple[faults.Fault, ...]] = {}
        self._live: dict[str, _Live] = {}
        self._looked_at = 0.0

    def close(self) -> None:
        """Gives its connections back."""
        self._conn.close()
        self._client.close()

    def prepare(self, cases: Iterable[Case]) -> None:
        """Writes the plan for worker processes; they read it again by themselves."""
        self._known.update({case.id: case.faults for case in cases})
        faults.write_plan(self._crew.plan, self._plan.definition_id, dict(self._known))

    def run(self, cases: list[Case], seconds: float) -> list[Outcome]:
        """Runs them all; those that have no end within ``seconds`` of their submission are left open and say so."""
        self.prepare(cases)
        waiting, ended = list(cases), list[Outcome]()
        while waiting or self._live:
            free = self._at_once - len(self._live)
            if waiting and free > 0:
                self._submit(waiting[:free], seconds)
                del waiting[:free]
            self._crew.check()
            for entry in self._reader.fresh():
                self._react(entry)
            if time.monotonic() - self._looked_at >= _LOOK:
                self._looked_at = time.monotonic()
                self._cut_waits()
                before = len(ended) * 5 // len(cases)
                ended += self._look()
                if len(ended) * 5 // len(cases) > before and len(cases) > 1:
                    self._say(f"{len(ended)} of {len(cases)} runs have ended")
            time.sleep(_TICK)
        self._settle_down()
        for outcome in ended:
            outcome.entries = self._reader.runs.get(str(outcome.run_id), [])
        return sorted(ended, key=lambda o: int(o.case.id))

    def _submit(self, cases: list[Case], seconds: float) -> None:
        requests = [
            {
                "workflow": self._plan.workflow,
                "version": self._plan.version,
                "subject_id": self._subject_of(case),
                "input": self._input,
                "labels": {faults.LABEL: case.id},
            }
            for case in cases
        ]
        for case, request, run_id in zip(cases, requests, submit_many(requests, ACTOR), strict=True):
            outcome = Outcome(case, run_id, str(request["subject_id"]), self._input)
            self._live[str(run_id)] = _Live(outcome, time.monotonic() + seconds)

    def _subject_of(self, case: Case) -> str:
        if "{case}" in self._subject:
            return self._subject.replace("{case}", case.id)
        return f"{self._subject}-{case.id}"

    def _react(self, entry: Entry) -> None:
        live = self._live.get(entry.run)
        if live is None:
            return
        if entry.event == "hold":
            self._cancel(live, entry.kind == Kind.COMPENSATION)
            (self._folder / f"go-{entry.case}-{entry.kind}").touch()
        elif entry.event == "closure":
            run_id, *rest = entry.note
            live.closures = [Closure(UUID(run_id), *rest)]
            self._repeat(live)
        elif entry.event == "start" and _is_repeated(live.outcome.case.target, entry):
            self._push_ticket(live)

    def _cancel(self, live: _Live, compensating: bool) -> None:
        try:
            cancel_run(live.outcome.run_id, ACTOR, "the fault matrix cancels this run")
        except Conflict as refused:
            if not compensating:
                live.outcome.problems.append(f"the cancel was refused: {refused.message}")
        else:
            if compensating:
                live.outcome.problems.append("a cancel of a run that compensates was accepted")

    def _approve(self, row_id: int) -> None:
        with suppress(Conflict):  # stopped meanwhile
            approve_step(row_id, ACTOR, "the fault matrix approves what comes")

    def _repeat(self, live: _Live) -> None:
        """Delivers the completion again, and the ticket of its step."""
        if live.closures:
            try:
                with _quiet():
                    close_attempts(self._conn, live.closures)
            except psycopg.errors.IntegrityError as broken:
                text = str(broken).splitlines()[0]
                live.outcome.problems.append(f"delivering the completion again broke the record: {text}")
            self._push_ticket(live)

    def _push_ticket(self, live: _Live) -> None:
        target = live.outcome.case.target
        if target is not None:
            queue = self._plan.work_spec(target.kind, target.step).queue
            ref = TicketRef(live.outcome.run_id, self._plan.definition_id, target.step, queue)
            publish(self._client, [ref], again=True)

    def _look(self) -> list[Outcome]:
        """Runs that have ended, or have been given up."""
        ids = [live.outcome.run_id for live in self._live.values()]
        found = rows(self._conn, "SELECT id, state FROM workflow_runs WHERE id = ANY(%s)", [ids])
        ended = []
        for row in found:
            live = self._live[str(row.id)]
            if row.state not in RUN_TERMINAL and time.monotonic() < live.until:
                continue
            if row.state not in RUN_TERMINAL:
                live.outcome.problems.append(f"the run has no end, it is {row.state}")
            self._repeat(live)  # also long after the end of the run
            del self._live[str(row.id)]
            ended.append(live.outcome)
        return ended

    def _cut_waits(self) -> None:
        """Ends what a run waits for because of its case, and timers, holds and approvals of the definition."""
        ids = [live.outcome.run_id for live in self._live.values()]
        waiting = """
            SELECT id, run_id, step, waiting_for, kind, shard, attempt FROM workflow_steps
            WHERE run_id = ANY(%s) AND (waiting_for IN ('approval', 'children')
                                        OR waiting_for IN ('retry', 'timer') AND ready_at > now())"""
        due = []
        for row in rows(self._conn, waiting, [ids]):
            live = self._live[str(row.run_id)]
            target = live.outcome.case.target
            if target and target.what == faults.CANCEL_WAITING and target.step == row.step:
                if not live.cancelled:
                    live.cancelled = True
                    self._cancel(live, compensating=False)
            elif row.waiting_for == "approval":
                self._approve(row.id)
            elif row.waiting_for == "timer" or (row.waiting_for == "retry" and _is_injected(live, row)):
                due.append(row.id)
        if due:
            put(self._conn, "UPDATE workflow_steps SET ready_at = now() WHERE id = ANY(%s) AND ready_at > now()", [due])
        put(self._conn, "UPDATE workflow_runs SET hold_until = now() WHERE id = ANY(%s) AND hold_until > now()", [ids])

    def _settle_down(self) -> None:
        """Lets tickets that were pushed once more be popped and found spent."""
        time.sleep(0.6)
        self._reader.fresh()


def _is_injected(live: _Live, row: Any) -> bool:
    """Whether it was the matrix that made the last attempt of a row fail."""
    return any(f.strikes(row.kind, row.step, row.shard, row.attempt) for f in live.outcome.case.faults)


def _is_repeated(target: faults.Fault | None, entry: Entry) -> bool:
    """Whether the entry is about a row whose messages come more than once."""
    return (
        target is not None
        and target.what in (faults.DUPLICATE, faults.DUPLICATE_FIRST)
        and entry.row == (target.kind, target.step, target.shard)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """What the engine says of a completion that came twice is no news here."""
    log = logging.getLogger("switchyard.engine")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
