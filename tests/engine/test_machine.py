"""Random interleavings of claims, ends, cancels, losses, sweeps and retries, against a model in plain Python.

The model knows who holds which claim and nothing of the engine: an end counts exactly when its claim is the one that
holds, a terminal state is left by a retry alone, and whatever was done before, the run can be brought to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import Conflict
from orchestrator.core.states import RUN_TERMINAL, STEP_TERMINAL, StepState
from orchestrator.engine import leases, recover, transitions
from orchestrator.engine.operate import cancel_run, retry_run
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.transitions import Closure, Ticket
from orchestrator.models import Run, Step
from tests.engine.conftest import OPERATOR
from tests.harness.invariants import check_invariants

MOVES = ("claim", "claim", "done", "done", "fail", "wait", "stale", "give_back", "lose", "wake", "cancel", "retry")


@dataclass
class Model:
    """Claims that hold, by row; all claims that ever were."""

    held: dict[int, Any] = field(default_factory=dict)
    ever: list[Any] = field(default_factory=list)
    retried: int = 0


def end(claim: Any, state: StepState) -> Closure:
    error = None if state is StepState.DONE else '{"type":"E","message":"m"}'
    cause, delay = (None, None) if state is StepState.DONE else ("error", 0.0 if state is StepState.WAITING else None)
    return Closure(claim.run_id, claim.id, claim.attempt, claim.token, state, cause, delay, error=error)


class Driver:
    """Makes moves on the real engine and on the model, and holds one against the other."""

    def __init__(self, kit: Any, run_id: Any) -> None:
        self.kit, self.run_id, self.model = kit, run_id, Model()
        self.conn = kit.worker.conn

    def claim(self, pick: int) -> None:
        ready = list(Step.objects.filter(run=self.run_id, state="queued").order_by("id"))
        if ready:
            row = ready[pick % len(ready)]
            with self.conn.transaction():
                got = transitions.claim(self.conn, [Ticket(self.run_id, row.step, 1)], self.kit.worker.holder)
            for claim in got:
                assert claim.id not in self.model.held, "a row that is held was claimed again"
                self.model.held[claim.id] = claim
                self.model.ever.append(claim)

    def _end(self, pick: int, state: StepState) -> None:
        if self.model.held:
            claim = list(self.model.held.values())[pick % len(self.model.held)]
            if state is StepState.WAITING and claim.attempt >= claim.max_attempts:
                state = StepState.FAILED  # no try is left
            assert close_attempts(self.conn, [end(claim, state)]).changed == 1
            del self.model.held[claim.id]

    def done(self, pick: int) -> None:
        self._end(pick, StepState.DONE)

    def fail(self, pick: int) -> None:
        self._end(pick, StepState.FAILED)

    def wait(self, pick: int) -> None:
        self._end(pick, StepState.WAITING)

    def stale(self, pick: int) -> None:
        """An illegal move: a claim that no longer holds ends again."""
        gone = [c for c in self.model.ever if self.model.held.get(c.id) is not c]
        if gone:
            before = list(Step.objects.filter(run=self.run_id).order_by("id").values())
            late = close_attempts(self.conn, [end(gone[pick % len(gone)], StepState.DONE)])
            assert (late.changed, late.late) == (0, 1)
            assert list(Step.objects.filter(run=self.run_id).order_by("id").values()) == before

    def give_back(self, pick: int) -> None:
        if self.model.held:
            claim = list(self.model.held.values())[pick % len(self.model.held)]
            assert leases.give_back(self.conn, [(claim.id, claim.attempt, claim.token)]) == 1
            del self.model.held[claim.id]

    def lose(self, pick: int) -> None:
        """The worker dies with everything in hand."""
        self.kit.worker.lose()
        self.model.held.clear()

    def wake(self, pick: int) -> None:
        self.conn.execute("UPDATE workflow_steps SET ready_at = now() WHERE state = 'waiting'")
        recover.wake_due(self.conn)

    def cancel(self, pick: int) -> None:
        before = Run.objects.get(pk=self.run_id)
        try:
            cancel_run(self.run_id, OPERATOR, "test")
            assert before.state == "running" and before.stop is None
        except Conflict:
            assert before.state != "running" or before.stop is not None

    def retry(self, pick: int) -> None:
        before = Run.objects.get(pk=self.run_id)
        try:
            retry_run(self.run_id, OPERATOR, "test")
            assert before.state in ("failed", "cancelled")
            self.model.retried += 1
        except Conflict:
            assert before.state not in ("failed", "cancelled")

    def check(self, before: Run) -> None:
        now = Run.objects.get(pk=self.run_id)
        if before.state in RUN_TERMINAL and now.retries == before.retries:
            assert (now.state, now.finished_at) == (before.state, before.finished_at)
        rows = list(Step.objects.filter(run=self.run_id))
        assert now.pending == sum(row.state not in STEP_TERMINAL for row in rows)
        assert {r.pk for r in rows if r.state == "running"} == set(self.model.held)
        check_invariants([self.run_id], at_rest=False)


@given(
    workflow=st.sampled_from(["saga", "static", "diamond", "window", "continue"]),
    moves=st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 50)), min_size=5, max_size=40),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_interleaving_agrees_with_the_model_and_can_be_brought_to_its_end(kit, workflow, moves):
    driver = Driver(kit, kit.submit(workflow))
    for move, pick in moves:
        before = Run.objects.get(pk=driver.run_id)
        getattr(driver, move)(pick)
        driver.check(before)
    driver.lose(0)
    kit.worker.elapse(600)
    kit.worker.work()
    assert Run.objects.get(pk=driver.run_id).state in RUN_TERMINAL
