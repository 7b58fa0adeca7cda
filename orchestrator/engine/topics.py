"""Topics and locks as people see them: what limits them and who says so, who holds and who waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, Q

from orchestrator.core.errors import NotFound
from orchestrator.core.states import StepState, WaitingFor
from orchestrator.models import Step, Topic

#: Topics and locks shown at once.
LIMIT = 200

# Of the definitions that name a topic, the one published last counts.
_DEFINED = """
SELECT DISTINCT ON (name) name, most FROM (
    SELECT step->'topic'->>'name' AS name, (step->'topic'->>'limit')::int AS most, d.id
    FROM workflow_definitions d CROSS JOIN LATERAL jsonb_array_elements(d.spec->'steps') AS step
    WHERE step->'topic'->>'name' IS NOT NULL AND (%(name)s::text IS NULL OR step->'topic'->>'name' = %(name)s)
) t ORDER BY name, id DESC"""
# Who waits is few or many, who holds is at most one a lock. Index: workflow_steps_lock, workflow_steps_waiting.
_LOCKS = """
WITH waiting AS (
    SELECT waiting_name AS name, count(*) AS n, min(coalesce(started_at, created_at)) AS since
    FROM workflow_steps WHERE state = 'waiting' AND waiting_for = 'lock' GROUP BY waiting_name
), held AS (
    SELECT lock_name AS name, id FROM workflow_steps WHERE state = 'running' AND lock_name IS NOT NULL
)
SELECT coalesce(h.name, w.name) AS name, h.id, coalesce(w.n, 0) AS n
FROM held h FULL JOIN waiting w ON w.name = h.name
ORDER BY coalesce(w.n, 0) DESC, 1 LIMIT %s"""


@dataclass(frozen=True)
class LockLine:
    """A lock that is held or waited for. ``holder`` is the running row with its run, if there is one."""

    name: str
    holder: Step | None
    waiting: int


def topic(name: str) -> dict[str, Any]:
    """A topic's limit, where it comes from, and what the topic holds; an entry of :func:`topics`.

    Raises:
        NotFound: nobody has set a limit for it, no setting and no definition names it, and no step uses it.
    """
    found = _topics(name)
    if not found:
        raise NotFound(f"there is no topic {name!r}: no definition names it and nobody has set its limit")
    return found[0]


def topics() -> list[dict[str, Any]]:
    """Every topic by name: ``{name, limit, origin, set_by, defined, configured, default, default_origin,
    running, waiting, updated_at}``.

    ``origin`` says which limit counts: ``runtime`` (set by ``set_by``), else ``settings`` (``configured``), else
    ``definition`` (``defined``), else ``none``. A ``limit`` of None is unlimited, 0 pauses.
    ``default`` and ``default_origin`` say the same as if nobody had set one at run time.
    """
    return _topics(None)


def _topics(name: str | None) -> list[dict[str, Any]]:
    only = Q() if name is None else Q(pk=name)
    rows = {row.name: row for row in Topic.objects.filter(only).order_by("name")[:LIMIT]}
    defined = _defined(name)
    configured = {n: most for n, most in settings.ORCHESTRATOR.topic_limits.items() if name in (None, n)}
    held = _held(name)
    names = sorted({*rows, *defined, *configured, *held})[:LIMIT]
    return [_line(n, rows.get(n), defined, configured, held.get(n, {})) for n in names]


def _defined(name: str | None) -> dict[str, int | None]:
    with connection.cursor() as cursor:
        cursor.execute(_DEFINED, {"name": name})
        return dict(cursor.fetchall())


def _held(name: str | None) -> dict[str, dict[str, Any]]:
    """Rows that run and that wait, by topic."""
    runs = Q(state=StepState.RUNNING)
    waits = Q(state=StepState.WAITING, waiting_for=WaitingFor.TOPIC)
    only = Q(topic__isnull=False) if name is None else Q(topic=name)
    found = Step.objects.filter(only & (runs | waits)).order_by().values("topic")
    return {
        str(r["topic"]): {**r}
        for r in found.annotate(running=Count("pk", filter=runs), waiting=Count("pk", filter=waits))
    }


def _line(
    name: str,
    row: Topic | None,
    defined: dict[str, int | None],
    configured: dict[str, int | None],
    held: dict[str, int],
) -> dict[str, Any]:
    if name in configured:
        default, source = configured[name], "settings"
    else:
        default = defined.get(name)
        source = "none" if default is None else "definition"
    origin, limit = ("runtime", row.limit) if row is not None and row.set_by else (source, default)
    updated: datetime | None = row.updated_at if row else None
    return {
        "name": name,
        "limit": limit,
        "origin": origin,
        "set_by": row.set_by if row else "",
        "defined": defined.get(name),
        "configured": configured.get(name),
        "default": default,
        "default_origin": source,
        "running": held.get("running", 0),
        "waiting": held.get("waiting", 0),
        "updated_at": updated,
    }


def locks() -> list[LockLine]:
    """Locks that are held or waited for, those with the most waiting first. Two queries."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCKS, [LIMIT])
        found = cursor.fetchall()
    light = Step.objects.select_related("run").defer("output", "item", "error", "run__input", "run__output")
    holders = {step.pk: step for step in light.filter(pk__in=[pk for _, pk, _ in found if pk])}
    return [LockLine(name, holders.get(pk), waiting) for name, pk, waiting in found]
