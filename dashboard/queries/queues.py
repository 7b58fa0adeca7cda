"""Queues and worker processes, from the rows: what waits, for how long, and who works on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, Window
from django.utils import timezone

from dashboard.nav import BOUND, frame
from orchestrator.engine.pauses import Paused
from orchestrator.models import Lease, Step

#: Worker processes looked at; ended ones are left out after five minutes.
MAX_WORKERS = 500
_ENDED_FOR = timedelta(minutes=5)

# Names: those given, and by a loose index scan those that have something queued. Counts: index only, bounded.
_QUEUES = f"""
WITH RECURSIVE busy AS (
  (SELECT queue FROM workflow_steps WHERE state = 'queued' ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT queue FROM workflow_steps WHERE state = 'queued' AND queue > busy.queue ORDER BY queue LIMIT 1)
  FROM busy WHERE busy.queue IS NOT NULL
), names AS (
  SELECT queue FROM busy WHERE queue IS NOT NULL UNION SELECT unnest(%s::text[])
)
SELECT n.queue, d.depth, o.oldest
FROM names n
CROSS JOIN LATERAL (SELECT count(*) AS depth FROM (
  SELECT 1 FROM workflow_steps s WHERE s.state = 'queued' AND s.queue = n.queue LIMIT {BOUND + 1}) x) d
CROSS JOIN LATERAL (
  SELECT min(s.ready_at) AS oldest FROM workflow_steps s WHERE s.state = 'queued' AND s.queue = n.queue) o
ORDER BY n.queue LIMIT 500
"""


@dataclass
class Worker:
    """A worker process and what it runs. ``mark``: busy, idle, lost or ended."""

    lease: Lease
    mark: str
    running: int = 0
    step: Step | None = None


@dataclass
class Queue:
    """One queue. ``depth`` counts queued steps and shards, at most the bound and one more."""

    name: str
    depth: int
    oldest: datetime | None
    running: int = 0
    workers: int = 0
    busy: int = 0
    pause: Paused | None = None
    names: list[str] = field(default_factory=list)

    @property
    def mark(self) -> str:
        """What is the matter, if anything: down (work but no worker), late (over a minute), paused, ok."""
        if self.pause:
            return "paused"
        if self.depth and not self.workers:
            return "down"
        if self.oldest and timezone.now() - self.oldest > timedelta(minutes=1):
            return "late"
        return "ok"

    @property
    def word(self) -> str:
        """The mark in words."""
        return {"paused": "Paused", "down": "No worker", "late": "Slow", "ok": "Moving"}[self.mark]

    @property
    def share(self) -> int:
        """Workers busy, in per cent, for the meter."""
        return round(100 * self.busy / self.workers) if self.workers else 0


def workers() -> list[Worker]:
    """Worker processes: lost ones first, then busy, idle, ended. Two queries."""
    now = timezone.now()
    recent = Lease.objects.filter(ended_at=None) | Lease.objects.filter(ended_at__gt=now - _ENDED_FOR)
    leases = list(recent.order_by("-expires_at")[:MAX_WORKERS])
    held = Step.objects.filter(state="running", lease_id__in=[lease.pk for lease in leases])
    # One row a process, with how many it has in hand.
    first = held.annotate(in_hand=Window(Count("pk"), partition_by=F("lease_id"))).distinct("lease_id")
    light = first.select_related("run").only(
        "step", "shard", "lease_id", "started_at", "queue", "run__workflow", "run__subject_id"
    )
    one = {step.lease_id: step for step in light.order_by("lease_id", "id")}
    found = []
    for lease in leases:
        step = one.get(lease.pk)
        running = step.in_hand if step is not None else 0
        found.append(Worker(lease, _mark(lease, running, now), running, step))
    order = {"lost": 0, "busy": 1, "idle": 2, "ended": 3}
    kept = [w for w in found if w.mark != "lost" or w.running or now - w.lease.expires_at < _ENDED_FOR]
    return sorted(kept, key=lambda w: (order[w.mark], w.lease.name))


def _mark(lease: Lease, running: int, now: datetime) -> str:
    if lease.ended_at:
        return "ended"
    if lease.expires_at < now:
        return "lost"
    return "busy" if running else "idle"


def queues(found: list[Worker]) -> list[Queue]:
    """Every queue that is configured, served or has work. One query; ``found`` are the :func:`workers`."""
    alive = [w for w in found if w.mark in ("busy", "idle")]
    known = {*settings.ORCHESTRATOR.queues, *(name for w in alive for name in w.lease.queues)}
    with connection.cursor() as cursor:
        cursor.execute(_QUEUES, [sorted(known)])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    pauses = {pause.name: pause for pause in frame().pauses if pause.kind == "queue"}
    answer = []
    for name, depth, oldest in rows:
        serving = [w for w in alive if name in w.lease.queues]
        busy = [w for w in serving if w.step and w.step.queue == name]
        queue = Queue(name, depth, oldest, sum(w.running for w in busy), len(serving), len(busy), pauses.get(name))
        answer.append(queue)
    order = {"down": 0, "late": 1, "paused": 2, "ok": 3}
    return sorted(answer, key=lambda q: (order[q.mark], -q.depth, q.name))
