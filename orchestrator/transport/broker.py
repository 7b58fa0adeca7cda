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
