"""The fault matrix on one definition that uses every key: children, limits, locks, joins, waits, a hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrator.testing import fault_matrix
from orchestrator.testing.outcome import Outcome
from tests.harness.live import Live
from tests.testing.conftest import World

PACKAGE = "tests.workflows.everything"
FILE = Path(__file__).parents[1] / "workflows/everything/everything.yaml"
TOP = {"workflow", "version", "description", "owner", "runbook", "labels", "deadline", "on_deadline", "schedule",
       "exclusive", "steps", "on_failure"}  # fmt: skip
STEP = {"id", "say", "handler", "queue", "timeout", "retries", "backoff", "compensate", "after", "fan_out", "window",
        "join", "join_timeout", "topic", "lock", "on_lock_conflict", "approval", "wait", "workflow", "subject_id",
        "input", "when", "on_error"}  # fmt: skip


def test_no_key_is_left_out() -> None:
    """Of what docs/writing-workflows.md and the parser know."""
    from orchestrator.definitions.spec import StepSpec, WorkflowSpec

    spec = yaml.safe_load(FILE.read_text())
    assert set(spec) == TOP == set(WorkflowSpec.model_fields)
    assert {key for step in spec["steps"] for key in step} == STEP == set(StepSpec.model_fields)
    assert set(spec["on_failure"]) == {"compensate", "terminal_state", "hold"}


@pytest.mark.servers
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_every_fault_at_every_boundary(live: Live, world: World) -> None:
    live.configure(ORCHESTRATOR_WORKFLOWS=PACKAGE)

    def check(outcome: Outcome) -> None:
        # Child runs that had ended done before their parent stopped stay so; the run's own effects are gone.
        world.check(outcome)

    matrix = fault_matrix("everything", world.input, check, packages=[PACKAGE])
    cases = {(c["step"], c["case"]) for c in matrix.as_json()["cases"]}
    for step in ("list", "rooms", "seats", "car", "flowers", "dispatch", "pay"):
        assert {"fail", "kill before", "kill at the end", "completed twice", "cancel"} <= {
            c for s, c in cases if s == step
        }
    for step in ("cool_off", "sign", "parcels", "receipt"):
        assert (step, "cancel") in cases
    print(f"\n{len(matrix.outcomes)} cases in {matrix.seconds:.0f} s")
