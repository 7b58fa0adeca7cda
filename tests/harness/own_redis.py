"""A Redis of a test's own, for what must not be done to the one that all tests share."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from orchestrator.services.process import free_port
from orchestrator.services.valkey import _binary
from tests.harness.live import Live
from tests.harness.wait import wait_until


class OwnRedis:
    """Listens on 127.0.0.1 and keeps nothing on disk. ``given``: lines of its configuration."""

    def __init__(self, folder: Path, **given: str) -> None:
        self.port = free_port()
        words = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "save": "",
            "appendonly": "no",
            "dir": str(folder),
            **given,
        }
        self._arguments = [part for name, value in words.items() for part in (f"--{name.replace('_', '-')}", value)]
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url)
        self.start()

    def start(self) -> None:
        """Starts it, empty, on the port that it had."""
        self._process = subprocess.Popen(
            [str(_binary()), *self._arguments], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=self._folder
        )
        wait_until(self._answers, 15)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        """It is gone, with all that it held."""
        self._process.kill()
        self._process.wait(10)

    def pause(self) -> None:
        """It takes connections and does not answer."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends :meth:`pause`."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """The end of the test."""
        self.client.close()
        self.kill()


@contextlib.contextmanager
def redis_of_its_own(live: Live, settings: Any, folder: Path, **options: str) -> Iterator[OwnRedis]:
    """The test's processes use this Redis instead of the session's."""
    own = OwnRedis(folder, **options)
    settings.REDIS_URL, before = own.url, live.redis
    live.redis = own.client
    try:
        yield own
    finally:
        live.redis = before
        for process in live.processes:
            process.kill_all()
        own.stop()
