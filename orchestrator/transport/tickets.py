"""Tickets: RQ jobs that say "there is work in step S of run R". JSON, never pickles; losing one loses nothing.

A ticket's id is made of what it is for, so that publishing it twice puts no second one beside the first, and popping
it finds everything in the id: the job's hash is there for RQ's own pages and tools.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.utils import now, utcformat

FUNCTION = "orchestrator.transport.tickets.run_ticket"
#: Ticket hashes go by themselves after a day; a step that is still queued then gets a new one.
_TTL = 86_400


#: Slots from here on: the step needs a topic's slot or a lock.
GATED = 1000


class TicketRef(NamedTuple):
    """What a ticket is for. ``slot`` tells the tickets of one fan-out apart."""

    run_id: UUID
    definition_id: int
    step: str
    queue: str
    slot: int = 0

    @property
    def gated(self) -> bool:
        """Whether the step needs a topic's slot or a lock beside a worker."""
        return self.slot >= GATED

    @property
    def id(self) -> str:
        """The RQ job id."""
        return f"{self.run_id}_{self.definition_id}_{self.slot}_{_encode(self.step)}"  # publish writes it too


_PLAIN = re.compile(r"[^A-Za-z0-9-]")
_ENCODED = re.compile(r"_([0-9a-f]+)_")


def _encode(step: str) -> str:
    """Job ids are made of letters, digits, dashes and underscores; anything else goes in as ``_<hex>_``."""
    return _PLAIN.sub(lambda m: f"_{ord(m[0]):x}_", step)


def parse(job_id: str, queue: str) -> TicketRef | None:
    """The ticket behind a job id; None for a job that is none of ours."""
    parts = job_id.split("_", 3)
    try:
        run, definition, slot, step = parts
        step = _ENCODED.sub(lambda m: chr(int(m[1], 16)), step)
        return TicketRef(UUID(run), int(definition), step, queue, int(slot)) if step else None
    except ValueError:
        return None


def run_ticket(run_id: str, step: str) -> None:
    """What a stock RQ worker would call. It runs nothing: the step stays queued and its ticket is issued again.

    Raises:
        RuntimeError: always; it says which worker to start.
    """
    raise RuntimeError("this queue is served by `python manage.py worker`, not by a stock rq worker; nothing was run")


#: Slots that the tickets of one step of one run have: so many may wait in a queue at once.
SLOTS = 64
#: Puts a ticket at the tail of its queue. Where one of the same slot waits there already (its hash is there from the
#: push to the pop), the next slot that is free is taken; with none free there are enough.
#: KEYS: queue. ARGV: "1" to push the slot itself all the same, seconds that the hash is kept, prefix of the hash, the
#: id before and behind the slot, the first slot, the slot, how many slots there are, fields and values of the hash.
_PUSH = """
local first, slot, slots = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
for tried = 0, slots - 1 do
    local id = ARGV[4] .. (first + (slot - first + tried) % slots) .. ARGV[5]
    local key = ARGV[3] .. id
    if ARGV[1] == '1' or redis.call('EXISTS', key) == 0 then
        redis.call('HSET', key, unpack(ARGV, 9))
        redis.call('EXPIRE', key, ARGV[2])
        redis.call('RPUSH', KEYS[1], id)
        return 1
    end
end
return 0
"""


def publish(client: Redis, refs: Iterable[TicketRef], *, again: bool = False) -> int:
    """Pushes tickets to the tails of their queues in one round trip; returns how many there were.

    Of one step of one run no more than :data:`SLOTS` wait at once, so a wide fan-out never fills the queue and runs
    beside it get their turn. ``again``: pushed whatever seems to wait, because it was popped, or may be lost.
    """
    pipe = client.pipeline(transaction=False)
    push = client.register_script(_PUSH)
    stamp = utcformat(now())
    queues: set[str] = set()
    count = 0
    for ref in refs:
        queue = Queue.redis_queue_namespace_prefix + ref.queue
        fields = [part for pair in _hash(ref, stamp).items() for part in pair]
        first = ref.slot - ref.slot % GATED
        before, behind = f"{ref.run_id}_{ref.definition_id}_", f"_{_encode(ref.step)}"
        push(
            keys=[queue],
            args=[int(again), _TTL, Job.key_for(""), before, behind, first, ref.slot, SLOTS, *fields],
            client=pipe,
        )
        queues.add(queue)
        count += 1
    if count:
        pipe.sadd(Queue.redis_queues_keys, *queues)
        pipe.execute()
    return count


def _hash(ref: TicketRef, stamp: str) -> dict[str, Any]:
    """The job as RQ stores it (Job.to_dict), without building a Job for each ticket."""
    payload = JSONSerializer.dumps((FUNCTION, None, (str(ref.run_id), ref.step), {}))
    return {
        "created_at": stamp,
        "enqueued_at": stamp,
        "data": zlib.compress(payload, 1),
        "origin": ref.queue,
        "description": f"{ref.step} of run {ref.run_id}",
        "status": JobStatus.QUEUED.value,
        "timeout": 180,
        "result_ttl": 0,
    }


def push_back(client: Redis, refs: Sequence[TicketRef]) -> None:
    """Returns tickets that were popped and not used to the head of their queues, in their order."""
    for queue in {ref.queue for ref in refs}:
        ids = [ref.id for ref in reversed(refs) if ref.queue == queue]
        client.lpush(Queue.redis_queue_namespace_prefix + queue, *ids)


def forget(client: Redis, refs: Sequence[TicketRef]) -> None:
    """Removes the jobs of tickets that have been used."""
    if refs:
        client.delete(*[Job.key_for(ref.id) for ref in refs])
