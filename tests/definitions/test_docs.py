"""What docs/writing-workflows.md shows is what is accepted and what is said."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.definitions.not_built import NOT_BUILT
from orchestrator.definitions.parse import loads
from tests.definitions.helpers import refused

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "writing-workflows.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def test_the_examples_are_accepted():
    whole, order, undo, nightly = BLOCKS
    assert len(loads(whole).spec.steps) == 5
    assert loads("workflow: w\nversion: 1\n" + order).spec.step("publish").after == ["audio", "video"]
    assert loads("workflow: w\nversion: 1\nsteps: [{id: probe}]\n" + nightly).spec.schedule.overlap == "skip"
    assert loads("workflow: w\nversion: 1\nsteps: [{id: probe}]\n" + undo).spec.on_failure.compensate[1].retries == 5


def test_every_example_in_the_table_of_keys_is_accepted():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", TEXT, re.MULTILINE)
    assert len(rows) > 12
    for key, examples in rows:
        for value in re.findall(r"`([^`]+)`", examples):
            body = {"id": "charge", key: value} if key != "id" else {"id": value}
            if key in ("window", "join", "join_timeout"):
                body["fan_out"] = "[1, 2]"
            if key == "on_lock_conflict":
                body["lock"] = '"item"'
            lines = "".join(f"    {k}: {v}\n" for k, v in body.items()).replace("    id", "  - id", 1)
            before = "".join(
                f"  - id: {name}\n" for name in ("probe", "a", "b", *(["charge"] if key == "after" else []))
            )
            if key == "after":
                lines = lines.replace("id: charge", "id: last")
            loads(f"workflow: order\nversion: 1\nsteps:\n{before}{lines}")


def test_the_mistakes_are_said_as_shown():
    said = refused("steps:\n  - id: charge\n    retires: 3\n    timeout: 30\n") + refused(
        "steps:\n  - {id: a, after: b}\n  - {id: b, after: a}\n"
    )
    for problem in said:
        assert problem.split(": ", 1)[1] in TEXT


def test_what_is_not_built_is_named():
    for key in NOT_BUILT:
        assert f"`{key.split('.')[-1]}`" in TEXT


def test_the_definitions_of_the_comparison_are_accepted():
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "comparison.md").read_text(), re.DOTALL)
    assert [loads(block).spec.workflow for block in blocks] == ["video", "renovate", "import"]
