"""Whether Redis answers and keeps what it is given, for health pages, the doctor and the start of processes."""

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


def eviction_warning(timeout: float = 1.0) -> str | None:
    """A sentence when Redis may throw tickets away to make room, None when it may not or does not say.

    Nothing is lost by it (tickets are issued again), but work waits until the dispatcher has noticed.
    """
    client = Redis.from_url(settings.REDIS_URL, socket_timeout=timeout, socket_connect_timeout=timeout)
    try:
        memory = client.info("memory")
    except RedisError:
        return None  # not there, or not allowed to ask; others say so
    finally:
        client.close()
    policy, most = str(memory.get("maxmemory_policy", "noeviction")), int(memory.get("maxmemory", 0))
    if not most or policy == "noeviction":
        return None
    return (
        f"Redis may evict tickets: maxmemory-policy is {policy} with maxmemory {most:,} bytes; "
        "set maxmemory-policy noeviction (evicted tickets are issued again, but late)"
    )
