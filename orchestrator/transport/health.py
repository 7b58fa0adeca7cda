"""Whether Redis answers, for health pages."""

from __future__ import annotations

from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError


def ping(timeout: float = 1.0) -> str | None:
    """None when Redis answers within ``timeout`` seconds, else what went wrong."""
    client = Redis.from_url(settings.REDIS_URL, socket_timeout=timeout, socket_connect_timeout=timeout)
    try:
        client.ping()
    except RedisError as problem:
        return str(problem) or type(problem).__name__
    finally:
        client.close()
    return None
