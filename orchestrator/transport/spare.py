"""A Redis database of one's own on a server that others use too, for tests that start from a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

from redis import Redis
from redis.exceptions import ResponseError

_TAKEN = "switchyard:taken"
_FIRST, _LAST = 1, 14


@contextmanager
def spare_database(url: str) -> Iterator[str]:
    """Takes a numbered database that is empty; yields its address and empties it at the end.

    Raises:
        RuntimeError: none is empty.
    """
    for number in range(_LAST, _FIRST - 1, -1):
        own = urlunsplit(urlsplit(url)._replace(path=f"/{number}"))
        client = Redis.from_url(own)
        try:
            if client.dbsize() == 0 and client.set(_TAKEN, "1", nx=True, ex=86_400):
                try:
                    yield own
                finally:
                    client.flushdb()
                return
        except ResponseError:
            continue  # the server has fewer
        finally:
            client.close()
    raise RuntimeError(f"none of the Redis databases {_FIRST} to {_LAST} is empty")
