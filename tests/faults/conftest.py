"""``world``: the kit workflows with real dispatcher and worker processes, a ledger, and the invariants at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.states import RUN_TERMINAL
from orchestrator.engine.operate import cancel_run, retry_run
from orchestrator.engine.submit import submit
from orchestrator.models import Outbox, Run
from tests.harness import ledger
from tests.harness.invariants import check_invariants
from tests.harness.live import Live
from tests.harness.processes import Process
from tests.harness.receiver import Receiver
from tests.harness.wait import wait_until

OPERATOR = Actor("olga", "operator")
#: The longest that a fault may go unnoticed with the timings of Live: lease + 2 sweeps, and a busy machine.
DETECT = 2 + 2 * 0.3 + 5


class World:
    """Short ways to start, disturb and look."""

    def __init__(self, live: Live, folder: Path) -> None:
        self.live = live
        self.ledger = ledger.Ledger(folder)

    def start(self, processes: int = 1, *queues: str) -> Process:
        """A dispatcher and a worker."""
        self.live.start_dispatcher()
        return self.worker(processes, *queues)

    def ready(self, processes: int) -> None:
        """Started, and waits until so many processes take tickets: for tests that count seconds."""
        self.start(processes)
        self.finish(self.submit("solo"))
        wait_until(lambda: self.live.redis.scard("rq:workers") >= processes, 15)

    def worker(self, processes: int = 1, *queues: str) -> Process:
        return self.live.start_worker(*queues, processes=processes)

    def submit(self, workflow: str, do: dict[str, Any] | None = None, subject: str = "s", **more: Any) -> UUID:
        return submit(f"kit-{workflow}", subject, {"do": do or {}, **more.pop("input", {})}, **more)

    def cancel(self, run_id: UUID, **more: Any) -> None:
        cancel_run(run_id, OPERATOR, "test", **more)

    def retry(self, run_id: UUID, **more: Any) -> None:
        retry_run(run_id, OPERATOR, "test", **more)

    def finish(self, *run_ids: UUID, timeout: float = 30) -> list[Run]:
        return [self.live.finish(run_id, timeout) for run_id in run_ids]

    def all_end(self, timeout: float = 60) -> None:
        """Every run has ended."""
        wait_until(
            lambda: not Run.objects.exclude(state__in=RUN_TERMINAL).exists(),
            timeout,
            interval=0.1,
            why=lambda: "\n".join(
                self.live.describe(pk)
                for pk in Run.objects.exclude(state__in=RUN_TERMINAL).values_list("pk", flat=True)[:3]
            ),
        )

    def until(self, condition: Callable[[], Any], timeout: float = 20) -> Any:
        def why() -> str:
            return "\n".join(self.live.describe(pk) for pk in Run.objects.values_list("pk", flat=True)[:3])

        return wait_until(condition, timeout, why=why)

    def called(self, name: str, times: int = 1, run: UUID | None = None, timeout: float = 20) -> None:
        """Waits until the handler of a step or shard has been called so often."""
        self.until(lambda: self.ledger.calls(name, run) >= times, timeout)

    def handler_process(self, name: str, run: UUID | None = None) -> psutil.Process:
        """The process that called the handler last."""
        return psutil.Process(self.ledger.of(name, ("start", "undo"), run)[-1].pid)

    def row(self, run_id: UUID, step: str, shard: str = "") -> Any:
        return Run.objects.get(pk=run_id).steps.get(step=step, shard=shard)


@pytest.fixture
def world(live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    """At the end nothing is left on its way, and what the record says agrees with itself."""
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path))
    live.publish("tests.workflows.kit")
    made = World(live, tmp_path)
    yield made
    if any(process.is_running() and process.name == "dispatcher" for process in live.processes):
        wait_until(lambda: not Outbox.objects.exists(), 10)
        check_invariants()
    else:
        check_invariants(at_rest=False)


@pytest.fixture
def receiver(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Where alerts of processes started from now on are posted."""
    server = Receiver()
    settings.ALERT_WEBHOOK_URL = server.url
    monkeypatch.setenv("ALERT_WEBHOOK_URL", server.url)
    yield server
    server.shutdown()
    server.server_close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/faults/" in item.nodeid:
            item.add_marker(pytest.mark.servers)
