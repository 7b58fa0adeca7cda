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

    def python(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=PROJECT, env=self.environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, *words: str) -> Process:
        return Process(name, [sys.executable, MANAGE, *words], self.environment, self.folder / f"{name}.log")

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
        site.python(MANAGE, "migrate")
        site.python(MANAGE, "publish")
        processes = [
            site.start("dispatcher", "dispatcher"),
            site.start("worker", "worker", "default", "--processes", "3"),
        ]
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
