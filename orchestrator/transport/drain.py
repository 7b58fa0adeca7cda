"""Using tickets up: claim, run, settle, go on with what that made ready, until the slice of time is over.

Runs in a worker process. Proven-short work goes in batches over shards and runs; anything else one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from orchestrator.core.metric_names import STEPS_WAITING_BUCKET, STEPS_WAITING_SUM, WAIT_BUCKETS, bucket_label
from orchestrator.core.states import Kind
from orchestrator.definitions import registry
from orchestrator.engine import history, leases, transitions
from orchestrator.engine.artifacts import StorageAway
from orchestrator.engine.db import Connection, in_transaction, relax_commit
from orchestrator.engine.gates import claim_gated
from orchestrator.engine.history import Counters
from orchestrator.engine.pace import Budget, Pace
from orchestrator.engine.pauses import Watch
from orchestrator.engine.plans import Node, Plan, load_plan
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.transitions import Closure, Holder, Ticket
from orchestrator.engine.versions import unserved
from orchestrator.engine.work import Work, from_claim, from_made
from orchestrator.transport.batch import Batch
from orchestrator.transport.tickets import TicketRef

log = logging.getLogger("switchyard.worker")
#: The connection is gone or of no use.
BROKEN = (psycopg.OperationalError, psycopg.InterfaceError)
#: Tickets in hand that may have work left.
Refs = dict[tuple[UUID, str], TicketRef]


class Drainer:
    """One worker process's way through tickets. ``connect`` gives the engine's connection of this process."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        holder: Holder,
        queues: Sequence[str],
        batch: Batch,
        stopping: Callable[[], bool],
    ) -> None:
        conf = settings.ORCHESTRATOR
        self.pace = Pace(conf.short_batch_seconds, conf.max_batch)
        self._connect = connect
        self._holder = holder
        self._queues = frozenset(queues)
        self._batch = batch
        self._stopping = stopping
        self._slice = conf.slice_seconds
        self._counters: Counters = {}
        self._pauses = Watch()

    def drain(self, refs: Sequence[TicketRef]) -> list[TicketRef]:
        """Runs what the tickets are for; returns those that may have work left, for the tails of their queues."""
        until = time.monotonic() + self._slice
        can = [ref for ref in refs if self._can_run(ref)]
        open_refs = {(ref.run_id, ref.step): ref for ref in can if not ref.gated}
        gated = {(ref.run_id, ref.step): ref for ref in can if ref.gated}
        self._heed_pauses(open_refs, gated)
        budget = self.pace.budget()
        works = self._claim(open_refs, budget) or self._claim_gated(gated)
        while works:
            closures = self._batch.run(works, self.pace)
            self._heed_pauses(open_refs, gated)
            going_on = time.monotonic() < until and not self._stopping()
            budget = self.pace.budget()
            more = self._tickets(open_refs, budget) if going_on else []
            works = self._settle(closures, more, budget if going_on else None, open_refs)
            if not works and going_on:
                works = self._claim_gated(gated)
        self._batch.clear()
        return [*open_refs.values(), *gated.values()]

    def rows_of(self, ref: TicketRef) -> int:
        """How many rows the ticket's step can have in one run."""
        return load_plan(self._connect(), ref.definition_id).rows_of(ref.step)

    def _can_run(self, ref: TicketRef) -> bool:
        """Whether this process has the handler; if not, the step stays queued and no attempt is spent."""
        plan = load_plan(self._connect(), ref.definition_id)
        node = plan.by_id.get(ref.step)
        kind, spec = (Kind.STEP, node.spec) if node else (Kind.COMPENSATION, plan.compensations.get(ref.step))
        if spec is None or registry.find(plan.workflow, spec.handler, kind) is None:
            log.warning("no handler here for %s of %s v%s: left queued", ref.step, plan.workflow, plan.version)
            lacks = unserved(self._holder.worker, spec.handler if spec else ref.step)
            transitions.note_unserved(self._connect(), ref.run_id, ref.step, lacks)
            return False
        return True

    def _heed_pauses(self, *held: Refs) -> None:
        """Drops the tickets of what is paused: nothing is claimed, and when it ends the dispatcher issues others."""
        try:
            self._pauses.refresh(self._connect())
            for refs in held if self._pauses else ():
                for key, ref in list(refs.items()):
                    plan = load_plan(self._connect(), ref.definition_id)
                    if self._pauses.holds(plan.workflow, ref.queue, undo=ref.step not in plan.by_id):
                        del refs[key]
        except BROKEN:
            return  # what was known still holds; recording what has ended comes first, and insists

    def _tickets(self, open_refs: Refs, budget: Budget) -> list[Ticket]:
        """How much to claim for the tickets in hand."""
        found = []
        for ref in open_refs.values():
            most = budget.take((ref.definition_id, ref.step), min(self.rows_of(ref), self.pace.max_batch), alone=True)
            if most:
                found.append(Ticket(ref.run_id, ref.step, most))
            if not budget.left:
                break
        return found

    def _claim(self, open_refs: Refs, budget: Budget) -> list[Work]:
        tickets = self._tickets(open_refs, budget)
        if not tickets:
            return []
        conn = self._connect()

        def claim() -> list[Any]:
            relax_commit(conn)
            return transitions.claim(conn, tickets, self._holder)

        with conn.pipeline():
            claimed = in_transaction(conn, claim)
        return self._claimed(claimed, tickets, open_refs)

    def _claim_gated(self, gated: Refs) -> list[Work]:
        """Rows of the first ticket that needs topics or locks; what finds no room is parked, and woken later."""
        while gated:
            key, ref = next(iter(gated.items()))
            most = self.pace.budget().take(
                (ref.definition_id, ref.step), min(self.rows_of(ref), self.pace.max_batch), alone=True
            )
            conn = self._connect()
            claimed = claim_gated(conn, [Ticket(ref.run_id, ref.step, most)], self._holder)
            if len(claimed) < most or self.rows_of(ref) == 1:
                del gated[key]
            if claimed:
                return [from_claim(row, load_plan(conn, row.definition_id)) for row in claimed]
        return []

    def _claimed(self, claimed: Sequence[Any], tickets: Sequence[Ticket], open_refs: Refs) -> list[Work]:
        """Work of claimed rows; a ticket that got fewer rows than it could take, or can have no more, is used up."""
        conn = self._connect()
        works = [from_claim(row, load_plan(conn, row.definition_id)) for row in claimed]
        got: dict[tuple[UUID, str], int] = {}
        for row in claimed:
            key = (row.run_id, row.step)
            got[key] = got.get(key, 0) + 1
            self._count_wait(row.queue, row.waited)
        for ticket in tickets:
            key = (ticket.run_id, ticket.step)
            ref = open_refs.get(key)
            if ref and (got.get(key, 0) < ticket.most or self.rows_of(ref) == 1):
                del open_refs[key]
        return works

    def _settle(
        self,
        closures: list[Closure],
        more: list[Ticket],
        budget: Budget | None,
        open_refs: Refs,
    ) -> list[Work]:
        """Records how the batch ended; returns what this process goes on with, claimed in the same transaction."""

        def take(plan: Plan, node: Node, count: int) -> int:
            if budget is None or node.spec.queue not in self._queues:
                return 0
            if self._pauses.holds(plan.workflow, node.spec.queue):
                return 0
            if registry.find(plan.workflow, node.spec.handler, Kind.STEP) is None:
                return 0
            return budget.take((plan.definition_id, node.id), count)

        try:
            settled = close_attempts(
                self._connect(), closures, holder=self._holder, take=take, more=more, counters=self._counters
            )
        except Exception as problem:
            self._mend(closures, problem)
            return []
        works = [from_made(*made) for made in settled.made]
        return works + self._claimed(settled.claimed, more, open_refs)

    def _mend(self, closures: Sequence[Closure], problem: Exception) -> None:
        """A statement failed, perhaps after its commit: records what has ended one by one, so that a run that cannot be
        taken further holds up no other, and gives back what may have been claimed.
        """
        log.warning("recording %s attempts did not go through, tried again one by one: %s", len(closures), problem)
        until = time.monotonic() + settings.ORCHESTRATOR.lease_seconds
        left: set[int] = set()
        for closure in closures:
            if not self._insist(until, partial(self._close_one, closure)):
                left.add(closure.step_id)
        self._insist(until, lambda: leases.give_back_held(self._connect(), self._holder.lease_id, left))

    def _close_one(self, closure: Closure) -> None:
        close_attempts(self._connect(), [closure])

    def _insist(self, until: float, work: Callable[[], object]) -> bool:
        """Tries until the database answers, and the storage of artifacts; False for what fails otherwise.

        Raises when the database stays away too long.
        """
        while True:
            try:
                work()
                return True
            except BROKEN:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            except StorageAway as problem:
                if time.monotonic() > until or self._stopping():
                    log.warning("an attempt could not be recorded; the dispatcher's sweep closes it: %s", problem)
                    return False
                time.sleep(0.2)
            except Exception:
                log.exception("an attempt could not be recorded; the dispatcher's sweep closes it")
                return False

    def _count_wait(self, queue: str, waited: float | None) -> None:
        seconds = max(waited or 0.0, 0.0)
        history.count(self._counters, STEPS_WAITING_BUCKET, {"queue": queue, "le": bucket_label(WAIT_BUCKETS, seconds)})
        history.count(self._counters, STEPS_WAITING_SUM, {"queue": queue}, seconds)
