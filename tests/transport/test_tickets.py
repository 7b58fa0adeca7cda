"""Tickets in a real Redis: as many as are asked for, up to a bound, and never one that cannot be read."""

from __future__ import annotations

import uuid

import pytest
import redis
from rq.job import Job
from rq.serializers import JSONSerializer

from orchestrator.transport.tickets import GATED, SLOTS, TicketRef, forget, parse, publish

pytestmark = pytest.mark.servers
QUEUE = "rq:queue:default"


@pytest.fixture
def client(settings):
    found = redis.Redis.from_url(settings.REDIS_URL)
    found.flushdb()
    yield found
    found.flushdb()
    found.close()


def ticket(slot=0, step="a", run=None):
    return TicketRef(run or uuid.uuid4(), 7, step, "default", slot)


def waiting(client):
    return [parse(raw.decode(), "default") for raw in client.lrange(QUEUE, 0, -1)]


def test_a_second_ticket_takes_the_next_slot_so_that_two_workers_find_one_each(client):
    ref = ticket()
    publish(client, [ref])
    publish(client, [ref, ref])
    assert [(r.run_id, r.slot, r.step) for r in waiting(client)] == [(ref.run_id, n, "a") for n in range(3)]
    forget(client, [ref])
    publish(client, [ref])
    assert [r.slot for r in waiting(client)] == [0, 1, 2, 0]


@pytest.mark.parametrize("base", [0, GATED])
def test_no_more_than_so_many_of_one_step_wait(client, base):
    ref = ticket(base + 5)
    publish(client, [ref] * (SLOTS + 30))
    assert sorted(r.slot for r in waiting(client)) == [base + n for n in range(SLOTS)]
    publish(client, [ticket(base + 5)])
    assert client.llen(QUEUE) == SLOTS + 1
    publish(client, [ref], again=True)
    assert client.llen(QUEUE) == SLOTS + 2 and waiting(client)[-1] == ref


def test_rq_can_read_it(client):
    ref = ticket(3, step="odd step_1")
    publish(client, [ref])
    assert waiting(client) == [ref] and client.exists(Job.key_for(ref.id)) == 1
    job = Job.fetch(ref.id, connection=client, serializer=JSONSerializer)
    assert (job.origin, job.args) == ("default", [str(ref.run_id), "odd step_1"])
