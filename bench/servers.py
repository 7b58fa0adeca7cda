"""Private servers for one benchmark: PostgreSQL and two Valkeys from the pip wheels, on free ports, gone at the end.

PostgreSQL and Switchyard's Valkey run as ``make run`` starts them (fsync on; an append-only file synced each second).
The peers have a Valkey of their own without persistence, which is what favours them most.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
import redis

from orchestrator.services import PROJECT
from orchestrator.services.postgres import Postgres
from orchestrator.services.unprivileged import open_home
from orchestrator.services.valkey import Valkey


class Servers:
    """Context manager: runs the servers, with their data in a folder of their own.

    Args:
        parent: where that folder is made; by default the temporary folder, or the project's ``.local`` where the
            temporary folder lies in memory: a commit must reach a disk to be a commit.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent or _disk_folder()
        self._folder: Path | None = None
        self._kept: dict[str, dict[str, Any]] = {"postgres": {}, "switchyard": {}, "peers": {}}

    def __enter__(self) -> Servers:
        self._parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="switchyard-bench-", dir=self._parent))
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is None:
            return
        for server in self._servers():
            server.stop()
        if os.geteuid() == 0:
            shutil.rmtree(open_home(self._folder), ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _servers(self) -> list[Postgres | Valkey]:
        assert self._folder
        return [
            Postgres(self._folder, self._kept["postgres"]),
            Valkey(self._folder / "switchyard", self._kept["switchyard"]),
            Valkey(self._folder / "peers", self._kept["peers"]),
        ]

    def _start(self) -> None:
        assert self._folder
        for name in ("switchyard", "peers"):
            (self._folder / name).mkdir()
        for server in self._servers():
            server.start()
        with redis.Redis.from_url(self._servers()[2].url) as client:
            client.config_set("appendonly", "no")
            client.config_set("requirepass", "")

    @property
    def postgres(self) -> Postgres:
        """The database server."""
        server = self._servers()[0]
        assert isinstance(server, Postgres)
        return server

    @property
    def environment(self) -> dict[str, str]:
        """What the scripts read to find the servers."""
        return {
            "BENCH_PG_HOST": "127.0.0.1",
            "BENCH_PG_PORT": str(self._kept["postgres"]["port"]),
            "BENCH_PG_PASSWORD": self._kept["postgres"]["password"],
            "BENCH_REDIS_HOST": "127.0.0.1",
            "BENCH_REDIS_PORT": str(self._kept["peers"]["port"]),
            "BENCH_SWITCHYARD_REDIS": self._servers()[1].url,
        }

    def facts(self) -> dict[str, Any]:
        """``{postgresql, valkey, filesystem, commits_per_s}``; the last is how fast one client commits to the disk."""
        assert self._folder
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            (version,) = connection.execute("SHOW server_version").fetchall()[0]
            rate = _commit_rate(connection)
        with redis.Redis.from_url(self._servers()[1].url) as client:
            info: Any = client.info("server")
        return {
            "postgresql": version,
            "valkey": info.get("valkey_version") or info["redis_version"],
            "filesystem": filesystem(Path(self._kept["postgres"].get("data", self._folder))),
            "commits_per_s": round(rate),
        }


def _commit_rate(connection: psycopg.Connection[Any], seconds: float = 1.0) -> float:
    connection.execute("CREATE TABLE floor (n int)")
    connection.execute("INSERT INTO floor VALUES (0)")
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        connection.execute("UPDATE floor SET n = n + 1")
        count += 1
    rate = count / (time.monotonic() - begin)
    connection.execute("DROP TABLE floor")
    return rate


def filesystem(path: Path) -> str:
    """Type of the file system that holds the path, such as ``ext4``; empty where it cannot be told."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    holding = [(len(point), kind) for point, kind in mounts if path.resolve().is_relative_to(point)]
    return max(holding)[1] if holding else ""


def _disk_folder() -> Path:
    folder = Path(tempfile.gettempdir())
    return folder if filesystem(folder) not in ("tmpfs", "ramfs") else PROJECT / ".local"
