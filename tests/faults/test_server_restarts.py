"""The servers themselves go down under load and come back: PostgreSQL crashed and restarted, Redis killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from orchestrator import services
from tests.faults.test_limits import most_at_once
from tests.harness.ledger import VARIABLE, Ledger
from tests.harness.processes import MANAGE, PROJECT, Process, ending
from tests.harness.wait import wait_until
from tests.setup.conftest import project_folder

pytestmark = [pytest.mark.servers, pytest.mark.long, pytest.mark.timeout(420)]
RUNS = 60
_SUBMIT = """
import django; django.setup()
from orchestrator.engine.submit import submit
for i in range({runs}):
    submit("kit-saga" if i % 3 == 0 else "kit-chain", f"s{{i}}", {{"do": {{"*": "sleep:0.1", **({{"d": "fatal"}} if i % 3 == 0 else {{}})}}}})
"""  # noqa: E501


class Site:
    """Servers, a dispatcher and a worker of this test's own."""

    def __init__(self, local: Path, folder: Path) -> None:
        self.local, self.folder = local, folder
        self.urls = services.ensure(local, ["postgres", "valkey"])
        self.ledger = Ledger(folder)
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
            "DATABASE_URL": self.urls.database,
            "REDIS_URL": self.urls.redis,
            "LOCAL_DIR": str(local),
            "ORCHESTRATOR_WORKFLOWS": "tests.workflows.kit",
            "ORCHESTRATOR_LEASE_SECONDS": "30",
            "ORCHESTRATOR_SWEEP_SECONDS": "1",
            "ARTIFACTS_URL": str(folder / "artifacts"),
            VARIABLE: str(folder),
            "PYTHONPATH": str(PROJECT),
        }
        self.python(MANAGE, "migrate")
        self.python(MANAGE, "publish")

    def python(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=PROJECT, env=self.environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, *words: str) -> Process:
        return Process(name, [sys.executable, MANAGE, *words], self.environment, self.folder / f"{name}.log")

    def serve(self) -> list[Process]:
        """A dispatcher, and a worker with three processes."""
        worker = self.start("worker", "worker", "default", "--processes", "3")
        return [self.start("dispatcher", "dispatcher"), worker]

    def rows(self, query: str) -> list[tuple]:
        with psycopg.connect(self.urls.database) as conn:
            return conn.execute(query).fetchall()

    def postgres(self, number: int) -> None:
        """SIGQUIT: it goes down at once, as in a crash, and recovers from its log. SIGINT: a restart."""
        kept = json.loads((self.local / "services.json").read_text())
        server = services.Postgres(self.local, kept["postgres"])
        pid = server.pid()
        assert pid
        os.kill(pid, number)
        wait_until(lambda: server.pid() is None, 30)
        assert services.ensure(self.local, ["postgres"]).database == self.urls.database

    def redis(self) -> None:
        kept = json.loads((self.local / "services.json").read_text())
        server = services.Valkey(self.local, kept["valkey"])
        pid = server.pid()
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not server.answers(), 15)
        assert services.ensure(self.local, ["valkey"]).redis == self.urls.redis


def test_servers_that_go_down_and_come_back(tmp_path: Path) -> None:
    with project_folder() as local:
        site = Site(local, tmp_path)
        processes = site.serve()
        with ending(processes):
            site.python("-c", _SUBMIT.format(runs=RUNS))
            faults = [lambda: site.postgres(signal.SIGQUIT), site.redis, lambda: site.postgres(signal.SIGINT)]
            for share, fault in zip((60, 160, 260), faults, strict=True):
                wait_until(lambda share=share: len(site.ledger.entries()) > share, 60, why=processes[1].log_tail)
                fault()
            live = "SELECT count(*) FROM workflow_runs WHERE state NOT IN ('done', 'failed', 'cancelled')"
            wait_until(lambda: site.rows(live) == [(0,)], 120, interval=0.3, why=processes[1].log_tail)
            assert all(process.is_running() for process in processes), "what serves is never started again by hand"
            states = dict(site.rows("SELECT workflow || ' ' || state || ' ' || coalesce(compensation, ''), count(*) "
                                    "FROM workflow_runs GROUP BY 1"))  # fmt: skip
            assert states == {"kit-chain done ": RUNS * 2 // 3, "kit-saga failed done": RUNS // 3}
            assert site.rows("SELECT DISTINCT attempt FROM workflow_steps WHERE state <> 'skipped'") == [(1,)]
            ended = Counter((e.run, e.step) for e in site.ledger.entries() if e.event in ("end", "undone"))
            assert len(ended) == RUNS * 2 // 3 * 5 + RUNS // 3 * (3 + 5)
            answer = json.loads(site.python(MANAGE, "doctor", "--json"))
            assert answer["ok"], answer


_ON_GPU = """
import django; django.setup()
from orchestrator.engine.submit import submit
for name in {names}:
    submit("kit-topic", name, {{"do": {{"list": {{"emit": [1]}}, "a": "{do}"}}}})
"""


def test_a_slot_whose_holder_is_killed_as_the_database_restarts(tmp_path: Path) -> None:
    """C54: its slot is free again, the others go through one by one, and none of them loses an attempt."""
    with project_folder() as local:
        site = Site(local, tmp_path)
        processes = site.serve()
        with ending(processes):
            site.python("-c", _ON_GPU.format(names=["holder"], do="hold1:x"))
            wait_until(lambda: site.ledger.of("a", ["start"]), 60, why=processes[1].log_tail)
            site.python("-c", _ON_GPU.format(names=[f"s{i}" for i in range(7)], do="sleep:0.1"))
            waiting = "SELECT count(*) FROM workflow_steps WHERE waiting_for = 'topic'"
            wait_until(lambda: site.rows(waiting) == [(7,)], 60, why=processes[1].log_tail)
            killed = site.ledger.of("a", ["start"])[0]
            os.kill(killed.pid, signal.SIGKILL)
            site.postgres(signal.SIGINT)
            live = "SELECT count(*) FROM workflow_runs WHERE state NOT IN ('done', 'failed', 'cancelled')"
            wait_until(lambda: site.rows(live) == [(0,)], 90, interval=0.3, why=processes[1].log_tail)
            attempts = "SELECT attempt, count(*) FROM workflow_steps WHERE step = 'a' AND state = 'done' GROUP BY 1"
            assert dict(site.rows(attempts)) == {1: 7, 2: 1}
            told = [e for e in site.ledger.of("a", ["start", "end"]) if e != killed]
            assert most_at_once(told) == 1 and len(told) == 16
            assert all(process.is_running() for process in processes)
            answer = json.loads(site.python(MANAGE, "doctor", "--json"))
            assert answer["ok"], answer
