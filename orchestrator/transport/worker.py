"""The worker process: an RQ worker of our own class whose jobs are tickets.

It keeps RQ's loop, registration and names, so that RQ's own tools see it, and gives up what the record replaces
(registries, results, callbacks, commands): one blocking pop and one pipeline a ticket.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any
from uuid import UUID

from psycopg.pq import TransactionStatus
from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import now

from orchestrator.engine.db import Connection, connect
from orchestrator.engine.transitions import Holder
from orchestrator.transport import tickets
from orchestrator.transport.batch import Batch
from orchestrator.transport.board import Board
from orchestrator.transport.drain import Drainer

log = logging.getLogger("switchyard.worker")
_HEARTBEAT = 15.0
#: Tickets of one fan-out that go on circulating when its shards are short.
SHORT_TICKETS = 4
_TTL = 30
#: Seconds between tickets that a process without a lease hands on.
_TICKET_BACK = 0.05


class Connections:
    """The engine's connections of this process: one for the main thread, one for the watcher; renewed when broken."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._main: Connection | None = None
        self._watch: Connection | None = None

    def main(self) -> Connection:
        """For claims, settlements and what handlers read. Nobody asks for it in the middle of a transaction."""
        if self._main is not None and self._main.info.transaction_status != TransactionStatus.IDLE:
            # Broken, or an alarm fired in the middle of one of its statements.
            self._main.close()
            self._main = None
        if self._main is None or self._main.closed:
            self._main = connect(self._name, hot=True)
        return self._main

    def watch(self) -> Connection:
        """For the watching thread."""
        if self._watch is None or self._watch.closed or self._watch.broken:
            self._watch = connect(f"{self._name} watch")
        return self._watch


class TicketWorker(SimpleWorker):
    """Serves queues of tickets until told to stop. Made after the fork, with a lease that the supervisor holds."""

    #: However long Redis was away, it is asked again this soon (RQ would wait up to a minute).
    max_connection_wait_time = 5.0

    def __init__(self, queues: Sequence[str], client: Redis, holder: Holder, board: Board) -> None:
        super().__init__(
            list(queues), name=holder.worker, connection=client, worker_ttl=_TTL, serializer=JSONSerializer,
            log_job_description=False,
        )  # fmt: skip
        self._popping = False
        self._beat_at = 0.0
        self._connections = Connections(holder.worker)
        self._board = board
        batch = Batch(self._connections.main, self._connections.watch, board)
        self.drainer = Drainer(self._connections.main, holder, queues, batch, self._is_leaving)

    def _is_leaving(self) -> bool:
        return self._stop_requested or not self._board.is_leased()

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Uses a ticket up, with more of the same kind from the queue's head while their work is proven short."""
        ref = tickets.parse(job.id, queue.name)
        if ref is None:
            log.warning("job %s on %s is no ticket of ours; dropped", job.id, queue.name)
            self.connection.delete(job.key)
            return
        if self._is_surplus(ref):
            self._used(ref).execute()
            return
        if not self._board.is_leased():
            # Paused past its lease, and about to be replaced: what it claimed now would cost an attempt.
            tickets.publish(self.connection, [ref], again=True)
            time.sleep(_TICKET_BACK)
            return
        try:
            left = self.drainer.drain([ref, *self._more(ref)])
            if left:
                tickets.publish(self.connection, left)
        except RedisError as problem:  # what has run is recorded; RQ waits until Redis is back
            log.warning("Redis failed under a ticket, the dispatcher issues what is lost again: %s", problem)

    def _is_surplus(self, ref: tickets.TicketRef) -> bool:
        """Whether a wide fan-out has more tickets out than short shards need: each takes its turn in the queue.

        A fan-out is opened with many tickets, one for each worker that a long shard may keep; once its shards are
        proven short a few go through them, and runs beside it do not wait behind the others.
        """
        many = ref.slot % tickets.GATED >= SHORT_TICKETS and self.drainer.rows_of(ref) > tickets.GATED // 10
        return many and self.drainer.pace.is_short((ref.definition_id, ref.step))

    def _used(self, ref: tickets.TicketRef) -> Any:
        """A pipeline that forgets the job of a ticket that was popped (from one queue, RQ keeps it on a side list)."""
        pipe = self.connection.pipeline(transaction=False)
        pipe.delete(Job.key_for(ref.id))
        if len(self.queues) == 1:
            pipe.lrem(self.queues[0].intermediate_queue_key, 1, ref.id)
        return pipe

    def _more(self, ref: tickets.TicketRef) -> list[tickets.TicketRef]:
        """Forgets the popped ticket's job and takes more tickets while the work is short."""
        pipe = self._used(ref)
        pace = self.drainer.pace
        key = (ref.definition_id, ref.step)
        rows = self.drainer.rows_of(ref)
        room = pace.cap(key) // rows - 1 if pace.is_short(key) else 0
        if room > 0:
            pipe.lpop(Queue.redis_queue_namespace_prefix + ref.queue, room)
        answers = pipe.execute()
        popped = answers[-1] if room > 0 else None
        refs = [r for r in (tickets.parse(i.decode(), ref.queue) for i in popped or []) if r is not None]
        kept: dict[tuple[UUID, str], tickets.TicketRef] = {}
        back = []
        for r in refs:
            # Not proven short, or a second ticket of one fan-out, which is for another worker: back to the head.
            fits = pace.is_short((r.definition_id, r.step)) and (r.run_id, r.step) != (ref.run_id, ref.step)
            if fits and (r.run_id, r.step) not in kept:
                kept[r.run_id, r.step] = r
            else:
                back.append(r)
        tickets.push_back(self.connection, back)
        tickets.forget(self.connection, list(kept.values()))
        return list(kept.values())

    # RQ's loop, leaner.

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """RQ's own sign of life, for its pages; the record's is the lease that the supervisor renews."""
        if time.monotonic() - self._beat_at >= _HEARTBEAT:
            self._beat_at = time.monotonic()
            if not self.connection.exists(self.key):
                self.register_birth()  # type: ignore[no-untyped-call]  # Redis was emptied: RQ would never register again
            super().heartbeat(timeout, pipeline)

    def set_state(self, state: str, pipeline: Any = None) -> None:
        """Kept here: nobody needs it in Redis."""
        self._state = state

    def dequeue_job_and_maintain_ttl(self, timeout: int | None, max_idle_time: int | None = None) -> Any:
        """Waits for the next ticket; a stop asked for meanwhile ends the wait."""
        self._popping = True
        try:
            if self._stop_requested:
                raise StopRequested
            return super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
        finally:
            self._popping = False

    def check_for_suspension(self, burst: bool) -> None:
        """``rq suspend`` is not ours; queues are paused in the record."""

    def subscribe(self) -> None:
        """No remote commands: stopping a job through RQ would bypass the record."""

    def unsubscribe(self) -> None:
        """See :meth:`subscribe`."""

    def run_maintenance_tasks(self) -> None:
        """RQ's registries are not used, so there is nothing to clean."""
        self.last_cleaned_at = now()  # type: ignore[assignment]

    def _install_signal_handlers(self) -> None:
        signal.signal(signal.SIGTERM, self.request_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Warm stop: finishes the running handler, gives back what has not begun, takes no more."""
        self._stop_requested = True
        if self._popping and threading.current_thread() is threading.main_thread():
            raise StopRequested

    def teardown(self) -> None:
        """Leaves RQ's list of workers; Redis may be gone, which changes nothing."""
        try:
            super().teardown()  # type: ignore[no-untyped-call]
        except RedisError:
            log.info("Redis is not there to say goodbye to")
