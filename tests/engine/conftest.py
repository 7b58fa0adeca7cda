"""``kit``: the test workflows published, a ledger, and a worker inside the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actor import Actor
from orchestrator.engine.operate import cancel_run, retry_run
from orchestrator.engine.submit import submit
from orchestrator.models import Run
from tests.harness import ledger
from tests.harness.inline import Inline
from tests.harness.invariants import check_invariants
from tests.harness.live import Live

OPERATOR = Actor("olga", "operator")


class Kit:
    """Short ways to run a kit workflow and to look at what came of it."""

    def __init__(self, live: Live, worker: Inline, folder: Path) -> None:
        self.live = live
        self.worker = worker
        self.ledger = ledger.Ledger(folder)

    def submit(self, workflow: str, do: dict[str, Any] | None = None, subject: str = "s-1", **more: Any) -> Any:
        """Starts ``kit-<workflow>``; other input by ``n=…``, arguments of submit by their names."""
        given = {"do": do or {}, **more.pop("input", {})}
        return submit(f"kit-{workflow}", subject, given, **more)

    def go(self, workflow: str, do: dict[str, Any] | None = None, **more: Any) -> Run:
        """Starts one and works until nothing is left to do."""
        run_id = self.submit(workflow, do, **more)
        self.worker.work()
        return self.run(run_id)

    def run(self, run_id: Any) -> Run:
        return Run.objects.get(pk=run_id)

    def cancel(self, run: Any, **more: Any) -> None:
        cancel_run(getattr(run, "pk", run), OPERATOR, "test", **more)

    def retry(self, run: Any, **more: Any) -> Run:
        """Retries and works until nothing is left to do."""
        retry_run(getattr(run, "pk", run), OPERATOR, "test", **more)
        self.worker.work()
        return self.run(getattr(run, "pk", run))

    def states(self, run: Any) -> dict[str, str]:
        """State of each row by ``step`` or ``step/shard``."""
        rows = self.run(getattr(run, "pk", run)).steps.order_by("id")
        return {f"{r.step}/{r.shard}" if r.shard else r.step: r.state for r in rows}

    def row(self, run: Any, step: str, shard: str = "") -> Any:
        return self.run(getattr(run, "pk", run)).steps.get(step=step, shard=shard)


@pytest.fixture
def kit(live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kit]:
    """The kit workflows are published; at the end everything the record says is checked."""
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path))
    live.publish("tests.workflows.kit")
    worker = Inline()
    try:
        yield Kit(live, worker, tmp_path)
        check_invariants()
    finally:
        worker.close()
