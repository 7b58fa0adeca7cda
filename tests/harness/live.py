"""What the ``live`` fixture gives: a database with committed data, Redis, and real processes that work on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import redis
from environs import Env

from orchestrator.config import load_engine_settings
from orchestrator.core.states import RUN_TERMINAL
from orchestrator.models import Run
from tests.harness.processes import MANAGE, PROJECT, Process
from tests.harness.scratch import ScratchDatabase
from tests.harness.wait import wait_until

#: Short, so that what a dispatcher does is seen soon; any of them can be set per test by :meth:`Live.configure`.
TIMINGS = {
    "ORCHESTRATOR_LEASE_SECONDS": "2",
    "ORCHESTRATOR_SWEEP_SECONDS": "0.3",
    "ORCHESTRATOR_CANCEL_GRACE_SECONDS": "1",
}


class Live:
    """One test's world. Everything it starts is killed at the end.

    ::

        def test_it(live):
            live.publish("tests.workflows.basic")
            live.start_dispatcher()
            worker = live.start_worker("default", processes=2)
            run_id = submit("three-steps", "subject-1")
            live.finish(run_id)

    Settings of the engine that a test needs go to :meth:`configure` before anything is started; they hold in this
    process and in the ones started.
    """

    def __init__(self, database: ScratchDatabase, settings: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.processes: list[Process] = []
        self._settings = settings
        self._monkeypatch = monkeypatch
        self.redis = redis.Redis.from_url(settings.REDIS_URL)
        self.redis.flushdb()
        self.configure(**TIMINGS, ARTIFACTS_URL=str(folder / "artifacts"))

    def configure(self, **environment: str) -> None:
        """Sets variables, such as ``ORCHESTRATOR_LEASE_SECONDS="1"``, here and for processes started from now on."""
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)
        self._settings.ORCHESTRATOR = load_engine_settings(Env())

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of a process under test."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
            "DATABASE_URL": self.database.url,
            "REDIS_URL": self._settings.REDIS_URL,
            "PYTHONPATH": str(PROJECT),
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    def start(self, name: str, *command: str, **environment: str) -> Process:
        """Starts any command of ``manage.py`` in the background."""
        log = self.folder / f"{name}-{len(self.processes)}.log"
        process = Process(name, [sys.executable, MANAGE, *command], self.environment(**environment), log)
        self.processes.append(process)
        return process

    def start_worker(self, *queues: str, processes: int = 1, **environment: str) -> Process:
        """Starts a worker; no queue named: ``default``."""
        return self.start("worker", "worker", *(queues or ("default",)), "--processes", str(processes), **environment)

    def start_dispatcher(self, **environment: str) -> Process:
        """Starts a dispatcher. Several may run; one leads."""
        return self.start("dispatcher", "dispatcher", **environment)

    def manage(self, *command: str, given: str | None = None, timeout: float = 60, **environment: str) -> Any:
        """Runs a command of ``manage.py`` to its end: ``.returncode``, ``.stdout``, ``.stderr`` (text)."""
        return subprocess.run(
            [sys.executable, MANAGE, *command],
            cwd=PROJECT,
            env=self.environment(**environment),
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def answer(self, *command: str, **environment: str) -> Any:
        """The JSON answer of a command that must succeed."""
        done = self.manage(*command, "--json", **environment)
        assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)

    def publish(self, *packages: str) -> None:
        """Publishes workflow packages and lets workers started from now on load them."""
        self.configure(ORCHESTRATOR_WORKFLOWS=":".join(packages))
        from orchestrator.definitions.publish import publish

        publish(list(packages))

    def run(self, run_id: uuid.UUID) -> Run:
        """The run as it is now."""
        return Run.objects.get(pk=run_id)

    def finish(self, run_id: uuid.UUID, timeout: float = 30) -> Run:
        """Waits until the run is terminal."""
        return wait_until(
            lambda: run if (run := self.run(run_id)).state in RUN_TERMINAL else None,
            timeout,
            why=lambda: self.describe(run_id),
        )

    def describe(self, run_id: uuid.UUID) -> str:
        """States of a run and its rows, for the message of a test that failed."""
        run = self.run(run_id)
        rows = [f"{row.step}[{row.shard}] {row.state} {row.cause or ''}".strip() for row in run.steps.order_by("id")]
        return f"run {run.state} {run.cause or ''}, nodes {run.node_states}, rows: {'; '.join(rows)}"

    def end(self) -> None:
        """Kills what runs and empties Redis."""
        for process in self.processes:
            process.resume()
            process.kill_all()
        self.redis.flushdb()
        self.redis.close()
