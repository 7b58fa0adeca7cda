"""The rules of what becomes ready, on random graphs, against a model that is small enough to be seen to be right."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.states import STEP_TERMINAL, NodeState, StepState
from orchestrator.definitions.spec import WorkflowSpec
from orchestrator.engine.advance import open_ready
from orchestrator.engine.closing import close_node
from orchestrator.engine.edit import RunEdit
from orchestrator.engine.plans import Plan
from tests.harness.specs import step_spec, workflow_spec

JOINS = {
    "all": {"mode": "all", "count": None, "percent": None},
    "settled": {"mode": "settled", "count": None, "percent": None},
    "two": {"mode": "at_least", "count": 2, "percent": None},
    "most": {"mode": "at_least", "count": None, "percent": 60},
}


@st.composite
def definitions(draw: Any) -> list[dict[str, Any]]:
    """Steps in an order, each after any of those before it; some fan out, some are conditional, some may fail."""
    steps: list[dict[str, Any]] = []
    plain: set[str] = set()  # never skipped, so that their output is a list
    for i in range(draw(st.integers(1, 9))):
        before = [s["id"] for s in steps]
        after = draw(st.lists(st.sampled_from(before), unique=True, max_size=4)) if before else []
        kind = draw(st.sampled_from(["plain", "plain", "fan", "dynamic", "when"]))
        more: dict[str, Any] = {"on_error": draw(st.sampled_from(["fail", "continue"]))}
        if kind == "fan":
            more["fan_out"] = {"items": list(range(draw(st.integers(0, 4)))), "source": None}
            more["join"] = JOINS[draw(st.sampled_from(sorted(JOINS)))]
        elif kind == "dynamic" and after and after[0] in plain:
            more["fan_out"] = {"items": None, "source": f"{after[0]}.list"}
        elif kind == "when" and after:
            more["when"] = f"{after[0]}.yes"
        elif kind == "plain":
            plain.add(f"s{i}")
        steps.append(step_spec(f"s{i}", after, **more))
    return steps


class Row(SimpleNamespace):
    """A locked row; what it does not name is null."""

    def __getattr__(self, name: str) -> None:
        return None


class Simulation:
    """One run in memory: what ``transitions`` would write is kept in ``rows``."""

    def __init__(self, steps: list[dict[str, Any]], seed: int, failing: float) -> None:
        self.plan = Plan(1, WorkflowSpec.model_validate(workflow_spec("model", 1, steps)))
        self.random = random.Random(seed)
        self.failing = failing
        self.letters = self.plan.fresh_states
        self.pending = 0
        self.stop: str | None = None
        self.rows: dict[tuple[str, str], str] = {}
        self.opened: Counter[str] = Counter()
        self.order: list[str] = []
        self.read_before_end: list[str] = []

    def edit(self) -> RunEdit:
        row = Row(
            id=uuid.UUID(int=1), state="running", stop=self.stop, cause=None, node_states=self.letters,
            pending=self.pending, retries=0, input_text=None,
        )  # fmt: skip
        return RunEdit.of(row, self.plan)

    def read(self, run_id: uuid.UUID, node: Any) -> Any:
        """Outputs follow from the step's name, so that the model knows them too."""
        if self.letters[node.index] == NodeState.PENDING:
            self.read_before_end.append(node.id)
        number = int(node.id[1:])
        return {"list": list(range(number % 4)), "yes": number % 2}

    def apply(self, edit: RunEdit) -> None:
        """What becomes of the edit, as ``transitions.write`` would have it."""
        for new in edit.new_steps:
            assert (new.step, new.shard) not in self.rows, f"{new.step}[{new.shard}] is opened twice"
            self.rows[new.step, new.shard] = new.state
            self.order.append(new.step)
            self.opened[new.step] += new.shard in ("", "0")
        for step, count in edit.released.items():
            waiting = [k for k, s in self.rows.items() if k[0] == step and s == StepState.PENDING]
            for key in waiting[:count]:
                self.rows[key] = StepState.QUEUED
        self.letters, self.pending = "".join(edit.nodes), self.pending + edit.delta
        self.stop = edit.stopping
        assert self.pending == sum(s not in STEP_TERMINAL for s in self.rows.values())

    def start(self) -> None:
        edit = self.edit()
        edit.candidates.extend(node.index for node in self.plan.roots)
        open_ready(edit, self.read)
        self.apply(edit)

    def close_one(self) -> None:
        """One row that is out ends, well or not."""
        step, shard = self.random.choice([k for k, s in self.rows.items() if s == StepState.QUEUED])
        ended = StepState.FAILED if self.random.random() < self.failing else StepState.DONE
        self.rows[step, shard] = ended
        members = Counter(s for (name, _), s in self.rows.items() if name == step)
        total, window = sum(members.values()), 1000
        row = SimpleNamespace(
            step=step, shard=shard, state=ended, cause="error", error_text=None, total=total, window=window, closed=1,
            open=sum(n for s, n in members.items() if s not in STEP_TERMINAL), done=members["done"],
            failed=members["failed"], skipped=members["skipped"], cancelled=0,
        )  # fmt: skip
        edit = self.edit()
        close_node(edit, row)
        before = set(self.rows)
        open_ready(edit, self.read)
        self.apply(edit)
        for key in set(self.rows) - before:
            assert not self.stop, f"{key} was opened in a run that has stopped"
            for name in self.plan.by_id[key[0]].spec.after:
                assert self.ended(name), f"{key} was opened before {name} had ended"

    def ended(self, step: str) -> bool:
        rows = [s for (name, _), s in self.rows.items() if name == step]
        return bool(rows) and all(s in STEP_TERMINAL for s in rows)

    def run(self) -> None:
        self.start()
        for _ in range(200):
            if not self.pending or self.stop:
                return
            self.close_one()
        raise AssertionError("does not end")


@settings(max_examples=300, deadline=None)
@given(definitions(), st.integers(0, 2**32))
def test_every_step_opens_once_after_all_before_it(steps, seed):
    run = Simulation(steps, seed, failing=0.0)
    run.run()
    assert run.pending == 0
    assert run.stop is None
    assert set(run.opened.values()) == {1}
    assert set(run.opened) == {s["id"] for s in steps}
    assert all(run.ended(s["id"]) for s in steps)
    assert run.read_before_end == []
    for spec, letter in zip(steps, run.letters, strict=True):
        assert letter == expected(spec, run), spec["id"]


def expected(spec: dict[str, Any], run: Simulation) -> str:
    """The letter of a step in a run in which nothing fails."""
    source = (spec["when"] or (spec["fan_out"] or {}).get("source") or "").split(".")[0]
    skipped = source and run.letters[run.plan.by_id[source].index] == NodeState.SKIPPED
    if spec["when"]:
        return NodeState.SKIPPED if skipped or int(source[1:]) % 2 == 0 else NodeState.DONE
    if spec["fan_out"] and spec["fan_out"]["source"]:
        return NodeState.DONE if int(source[1:]) % 4 else NodeState.SKIPPED
    if spec["fan_out"]:
        return NodeState.DONE if spec["fan_out"]["items"] else NodeState.SKIPPED
    return NodeState.DONE


@settings(max_examples=300, deadline=None)
@given(definitions(), st.integers(0, 2**32), st.sampled_from([0.1, 0.5, 1.0]))
def test_whatever_fails_a_run_ends_or_stops_and_nothing_opens_after_it(steps, seed, failing):
    run = Simulation(steps, seed, failing)
    run.run()
    failed = {step for (step, _), state in run.rows.items() if state == StepState.FAILED}
    may_fail = {s["id"] for s in steps if s["on_error"] == "continue"}
    lenient = {s["id"] for s in steps if s["join"]["mode"] != "all"}
    if run.stop:
        assert failed - may_fail, "only a step that may not fail stops a run"
    else:
        assert run.pending == 0
        assert failed <= may_fail | lenient
        assert all(run.ended(s["id"]) for s in steps)
    assert set(run.opened.values()) <= {1}
