"""Queues as people see them, and setting a topic's limit."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Min
from django.db.models.functions import Now

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask_text
from orchestrator.core.states import StepState
from orchestrator.engine import audit, gates, topics
from orchestrator.engine.clock import record_now
from orchestrator.engine.db import caller_connection, notify
from orchestrator.models import Lease, Pause, Step, Topic

MAX_LIMIT = 2**31 - 1
#: In the place of a limit: none of run time any more, so that the settings' counts again, else the definition's.
DEFAULT: Final = "default"
Limit = int | None | Literal["default"]


def set_topic_limit(name: str, limit: Limit, actor: Actor, reason: str = "") -> None:
    """Sets a topic's cluster-wide limit, from now on; it wins over the settings' and the
    definition's. ``None``: unlimited; 0 pauses; :data:`DEFAULT`: back to what the settings or the definition say.

    Raises:
        NotAllowed: the actor's role is below operator.
        NotFound: back to the default of a topic that there is not.
        Invalid: a name that no topic can have, or a limit below zero.
    """
    require(actor, "operator")
    if not re.fullmatch(r"[^\s\x00-\x1f]{1,200}", name):
        raise Invalid(f"{name!r} is not a topic's name: 1 to 200 characters without spaces", field="name")
    if isinstance(limit, str) and limit != DEFAULT:
        raise Invalid(f"limit is a whole number from 0, null for unlimited, or {DEFAULT!r}", field="limit")
    if isinstance(limit, int) and not 0 <= limit <= MAX_LIMIT:
        raise Invalid("limit is a whole number from 0, or null for unlimited", field="limit")
    known = topics.topic(name) if limit == DEFAULT else None
    with transaction.atomic():
        if known is None:
            Topic.objects.bulk_create([Topic(name=name)], ignore_conflicts=True)
        topic = Topic.objects.select_for_update(no_key=True).filter(pk=name).first()
        if topic is None or (known is not None and not topic.set_by):
            return
        before = {"limit": topic.limit, "set_by": topic.set_by}
        number, set_by = (known["default"], "") if known is not None else (limit, actor.name)
        Topic.objects.filter(pk=name).update(limit=number, set_by=set_by, updated_at=Now())
        after = {"limit": number, "set_by": set_by}
        audit.note(f"topic {name}", "topic", actor, reason, before=before, after=after)
        conn = caller_connection()
        if gates.promote(conn, [name], []):
            notify(conn)


def queues() -> list[dict[str, Any]]:
    """Every queue that is configured, holds work or is served: ``{queue, depth, oldest_seconds, running, workers,
    paused}``. ``depth`` counts the shards and steps that wait for a worker, ``oldest_seconds`` how long the first has.
    """
    now = record_now()
    waiting = Step.objects.filter(state=StepState.QUEUED).order_by().values("queue")
    queued: dict[str, Any] = {row["queue"]: row for row in waiting.annotate(depth=Count("pk"), oldest=Min("ready_at"))}
    running = dict(
        Step.objects.filter(state=StepState.RUNNING).order_by().values_list("queue").annotate(rows=Count("pk"))
    )
    workers = live_workers()
    paused = {
        pause.name: {"until": pause.until, "reason": mask_text(pause.reason), "actor": pause.actor}
        for pause in Pause.objects.filter(kind="queue", until__gt=Now())
    }
    names = {*settings.ORCHESTRATOR.queues, *queued, *running, *workers, *paused}
    return [
        {
            "queue": name,
            "depth": queued[name]["depth"] if name in queued else 0,
            "oldest_seconds": _age(queued.get(name, {}).get("oldest"), now),
            "running": running.get(name, 0),
            "workers": workers.get(name, 0),
            "paused": paused.get(name),
        }
        for name in sorted(names)
    ]


def live_workers() -> dict[str, int]:
    """Worker processes that are alive, by queue."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT queue, count(*) FROM {Lease._meta.db_table}, unnest(queues) AS queue
                WHERE ended_at IS NULL AND expires_at > now() GROUP BY queue"""
        )
        return dict(cursor.fetchall())


def _age(since: Any, now: Any) -> float:
    return max(0.0, round((now - since).total_seconds(), 3)) if since else 0.0
