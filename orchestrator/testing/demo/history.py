"""Fills a database with the history of a made-up shop: every kind of run, in the proportions of a busy one."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from math import isqrt
from typing import Any

from django.db import connection
from django.utils import timezone

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict
from orchestrator.engine import audit
from orchestrator.models import Beat, Lease, Run, Topic
from orchestrator.testing.demo import shop, stamp, workflows
from orchestrator.testing.disposable import database_name, is_disposable

ACTOR = Actor("demo_data", "admin")
BATCH = 20_000
#: Worker processes for each queue; their leases last a day, so that nothing takes their work away meanwhile.
WORKERS = 6
LEASE = timedelta(days=1)


@dataclass(frozen=True)
class Made:
    """What was made. ``seconds``: how long it took."""

    runs: int
    steps: int
    dead_letters: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The same as a document."""
        return asdict(self)


def require_empty(append: bool) -> None:
    """Refuses a database that holds runs, unless it may be played with or ``append`` says that they may be mixed.

    Raises:
        Conflict: nothing was touched; the message says what to do.
    """
    if append or not Run.objects.exists() or is_disposable(database_name()):
        return
    raise Conflict(
        f"the database {database_name()!r} holds runs, and made-up ones would stand among them; nothing was touched. "
        "Point DATABASE_URL at an empty one, or at one whose name has test, disposable or scratch as a word, or say "
        "--append"
    )


def live_count(runs: int) -> int:
    """How many of so many runs are under way: a shop with more history is not busier in proportion."""
    return min(runs // 2, isqrt(16 * runs))


def generate(
    runs: int, *, seed: int = 1, days: float = 3.0, append: bool = False, say: Callable[[str], None] = lambda _: None
) -> Made:
    """Makes ``runs`` runs (child runs beside them) over the last ``days`` days; the same ``seed`` gives the same shop.

    From 1,000 runs on one of them is a fan-out of 5,000 shards. Batches are committed one by one; if it is stopped,
    what is there agrees with itself.

    Raises:
        Conflict: see :func:`require_empty`.
    """
    require_empty(append)
    begun, now = time.monotonic(), timezone.now()
    plans = workflows.publish(ACTOR, now)
    ended, live, children = shop.ended(plans), shop.live(plans), shop.children(plans)
    outlines = [*ended, *live, *children.values(), shop.wide(plans, 5_000)]
    numbers = {state: len(ended) + len(live) + 1 + place for place, state in enumerate(children)}
    queues = sorted({row.queue for one in outlines for row in one.rows})
    stamp.prepare(outlines, numbers, _leases(queues, now))
    base = _highest() // 2 * 2 + 2
    under_way = live_count(runs)
    made = [0, 0]
    total = runs - under_way - (runs >= 1000)
    weights = [one.weight / sum(o.weight for o in ended) for one in ended]
    values: dict[str, Any] = {
        "seed": f"{seed}:{uuid.uuid4() if append else ''}", "leases": WORKERS, "of": max(total, 1), "base": base,
        "days": days, "span": days * 86_400, "now": now, "shapes": list(range(1, len(ended) + 1)),
        "bounds": [0.0, *list(accumulate(weights))[:-1]],
    }  # fmt: skip
    dice = random.Random(seed)
    for first in range(base, base + total, BATCH):
        last = min(first + BATCH, base + total) - 1
        _add(made, stamp.stamp("ended", {**values, "first": first, "last": last, "random": dice.uniform(-1, 1)}))
        say(f"{made[0]:,} runs, {made[1]:,} steps, {time.monotonic() - begun:.0f} s")
    first = (base + total) // 2 * 2 + 2
    kinds = list(range(len(ended) + 1, len(ended) + len(live) + 1))
    values |= {"now": timezone.now(), "shapes": kinds, "kinds": len(kinds), "random": dice.uniform(-1, 1)}
    _add(made, stamp.stamp("live", {**values, "first": first, "last": first + under_way - 1}))
    if runs >= 1000:
        last = first + under_way
        values |= {"shapes": [len(outlines)], "kinds": 1, "first": last, "last": last}
        _add(made, stamp.stamp("live", values))
    return _finish(made, runs, begun)


def _add(made: list[int], more: tuple[int, int]) -> None:
    made[0] += more[0]
    made[1] += more[1]


def _highest() -> int:
    """The number of the last made-up run, from its key; numbers go on behind it."""
    query = """SELECT coalesce(max(substr(idempotency_key, 5)::bigint), 0) FROM workflow_runs
               WHERE idempotency_key ~ '^key-[0-9]{1,15}$'"""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0]) + 5_000


def _leases(queues: list[str], now: datetime) -> list[tuple[str, int, int, str]]:
    rows = [
        Lease(token=uuid.uuid4(), name=f"{queue}-{number + 1}", host="demo", pid=1000 + number, queues=[queue],
              started_at=now - timedelta(hours=20), heartbeat_at=now, expires_at=now + LEASE)
        for queue in queues for number in range(WORKERS)
    ]  # fmt: skip
    made = Lease.objects.bulk_create(rows)
    return [(row.queues[0], place % WORKERS, row.pk, row.name) for place, row in enumerate(made)]


def _finish(made: list[int], runs: int, begun: float) -> Made:
    """What is not of a run, and figures about the tables for the planner."""
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM workflow_steps WHERE topic = 'gpu' AND state = 'running'")
        limit = max(40, cursor.fetchone()[0])
    Topic.objects.update_or_create(name="gpu", defaults={"limit": limit, "set_by": "mara.lindt", "updated_at": now})
    audit.note("topic gpu", "topic", ACTOR, "made up", after={"limit": limit})
    beat = {"holder": "demo", "beat_at": now, "expires_at": now}
    Beat.objects.update_or_create(name="dispatcher", defaults=beat)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM workflow_dead_letters")
        letters = int(cursor.fetchone()[0])
        inside = connection.in_atomic_block  # a test: VACUUM cannot run there
        for name in ("runs", "steps", "fan_outs", "attempts", "dead_letters", "audit", "rollups", "outbox", "leases"):
            cursor.execute(f"{'ANALYZE' if inside else 'VACUUM (ANALYZE)'} workflow_{name}")
        cursor.execute(f"DROP TABLE {stamp.NAMES}")
    return Made(made[0], made[1], letters, round(time.monotonic() - begun, 1))
