"""Short ways to fail runs and to work off a bulk operation without a dispatcher."""

from __future__ import annotations

from orchestrator.engine import bulk
from orchestrator.engine.find_dead_letters import DeadLetterFilters
from orchestrator.models import BulkOperation, Run
from tests.engine.conftest import Kit

SOLO = DeadLetterFilters(workflow="kit-solo")


def due() -> None:
    """The pace and the look at the first one's run are due now."""
    BulkOperation.objects.update(due_at="2000-01-01T00:00:00Z", watch_at="2000-01-01T00:00:00Z")


def drive(kit: Kit, operation: BulkOperation, rounds: int = 200) -> BulkOperation:
    """A dispatcher and a worker, until the operation is no longer under way."""
    for _ in range(rounds):
        due()
        bulk.advance(seconds=5, limit=1)
        kit.worker.work()
        now = bulk.get(operation.pk)
        if now.state != "running":
            return now
    raise AssertionError(f"still {now.state} after {rounds} rounds")


def results(operation: BulkOperation) -> dict[str, tuple[str, str]]:
    return {item.target: (item.state, item.detail) for item in operation.items.order_by("position")}


def failed(kit: Kit, count: int, do: str = "fail:1", workflow: str = "solo") -> list[Run]:
    made = [kit.submit(workflow, {"a": do}, subject=f"s-{n}") for n in range(count)]
    kit.worker.work()
    runs = [kit.run(run_id) for run_id in made]
    assert {run.state for run in runs} == {"failed"}
    return runs
