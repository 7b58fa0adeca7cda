"""Topics and locks for the page of queues: who holds, who waits, and what happens on a conflict."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from orchestrator.engine import topics as engine
from orchestrator.engine.gates import policy_of
from orchestrator.engine.reading import plan

#: Locks on the page, and holders and waiters named of each.
LOCKS, NAMED = 12, 3

# Index: workflow_steps_waiting, workflow_steps_lock, workflow_steps_topic (all of open rows only).
_WHO = """
WITH waiting AS (
  SELECT waiting_name AS name, count(*) AS n FROM workflow_steps
  WHERE state = 'waiting' AND waiting_for = 'lock' AND waiting_name IS NOT NULL GROUP BY waiting_name
), names AS (
  (SELECT 'lock' AS kind, x.name, max(x.n) AS n, count(*) OVER () AS total FROM (
     SELECT name, n FROM waiting
     UNION ALL SELECT lock_name, 0 FROM workflow_steps WHERE state = 'running' AND lock_name IS NOT NULL
   ) x GROUP BY x.name ORDER BY 3 DESC, 2 LIMIT %(locks)s)
  UNION ALL SELECT 'topic', name, 0, 0 FROM unnest(%(topics)s::text[]) AS name
)
SELECT k.kind, k.name, k.n, k.total, s.state, s.step, s.shard, s.kind AS row_kind, s.since,
       r.id, r.workflow, r.subject_id, r.definition_id, r.on_lock_conflict
FROM names k
LEFT JOIN LATERAL (
  (SELECT id, run_id, state, step, shard, kind, started_at AS since FROM workflow_steps h
   WHERE h.state = 'running' AND k.kind = 'lock' AND h.lock_name = k.name LIMIT %(named)s)
  UNION ALL
  (SELECT id, run_id, state, step, shard, kind, started_at FROM workflow_steps h
   WHERE h.state = 'running' AND k.kind = 'topic' AND h.topic = k.name ORDER BY started_at LIMIT %(named)s)
  UNION ALL
  (SELECT id, run_id, state, step, shard, kind, created_at FROM workflow_steps w
   WHERE w.state = 'waiting' AND w.waiting_for = 'lock' AND k.kind = 'lock' AND w.lock_name = k.name
   ORDER BY w.id LIMIT %(named)s)
) s ON true
LEFT JOIN workflow_runs r ON r.id = s.run_id
ORDER BY k.kind, k.n DESC, k.name, s.since
"""

#: What becomes of a step that finds the lock held, by policy.
POLICY = {
    "requeue": "others wait",
    "reject": "others are rejected",
    "dead_letter": "others go to the dead letters",
}


@dataclass(frozen=True)
class Who:
    """A row that holds or waits."""

    run_id: uuid.UUID
    workflow: str
    subject_id: str
    step: str
    shard: str
    since: datetime | None


@dataclass
class TopicLine:
    """A topic. ``facts`` is the entry of ``engine.topics``; ``holders`` are the first few of those that run."""

    facts: dict[str, Any]
    holders: list[Who] = field(default_factory=list)

    @property
    def mark(self) -> str:
        """paused (limit 0), full, open."""
        limit = self.facts["limit"]
        if limit == 0:
            return "paused"
        return "full" if limit is not None and self.facts["running"] >= limit else "open"

    @property
    def share(self) -> int:
        """Slots in use, in per cent, for the meter."""
        running, limit = int(self.facts["running"]), int(self.facts["limit"] or 0)
        return min(100, round(100 * running / limit)) if limit else 0

    @property
    def more(self) -> int:
        """Holders that are not named."""
        return max(int(self.facts["running"]) - len(self.holders), 0)


@dataclass
class LockLine:
    """A lock that is held or waited for."""

    name: str
    waiting: int
    holder: Who | None = None
    waiters: list[Who] = field(default_factory=list)
    policy: str = ""

    @property
    def more(self) -> int:
        """Waiters that are not named."""
        return max(self.waiting - len(self.waiters), 0)


def topics_and_locks() -> tuple[list[TopicLine], list[LockLine], int]:
    """Topics, those with work waiting first; locks, the most waited for first, and how many there are. Four queries."""
    lines = {facts["name"]: TopicLine(facts) for facts in engine.topics()}
    locks: dict[str, LockLine] = {}
    total = 0
    policies: dict[str, set[str]] = defaultdict(set)
    for row in _who(list(lines)):
        who = Who(row["id"], row["workflow"], row["subject_id"], row["step"], row["shard"], row["since"])
        if row["kind"] == "topic":
            if row["id"]:
                lines[row["name"]].holders.append(who)
            continue
        total = row["total"]
        lock = locks.setdefault(row["name"], LockLine(row["name"], row["n"]))
        if row["id"] is None:
            continue
        if row["state"] == "running":
            lock.holder = who
        else:
            lock.waiters.append(who)
        own = row["on_lock_conflict"] or policy_of(plan(row["definition_id"]), row["row_kind"], row["step"])
        policies[lock.name].add(POLICY.get(own, own))
    for name, found in policies.items():
        locks[name].policy = " or ".join(sorted(found))
    order = {"full": 0, "paused": 1, "open": 2}
    ranked = sorted(lines.values(), key=lambda t: (-t.facts["waiting"], order[t.mark], t.facts["name"]))
    return ranked, list(locks.values()), total


def _who(topics: list[str]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(_WHO, {"topics": topics, "locks": LOCKS, "named": NAMED})
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
