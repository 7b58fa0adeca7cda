"""Connections to Redis, through django-rq's configuration of the queues."""

from __future__ import annotations

import django_rq
from django.conf import settings
from redis import Redis


def connection() -> Redis:
    """A client for the queues' Redis; its pool is this process's own."""
    name = next(iter(settings.RQ_QUEUES))
    client: Redis = django_rq.get_connection(name)
    return client


def queue_options(name: str) -> dict[str, object]:
    """Configuration of a queue; one that is not listed uses the first queue's server."""
    listed: dict[str, dict[str, object]] = settings.RQ_QUEUES
    return listed.get(name) or next(iter(listed.values()))
