"""The run as JSON: the contract's shape, whatever the state; masked; few queries however many shards."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from django.core.cache import cache

from orchestrator.core.errors import NotFound
from orchestrator.core.states import StepState, WaitingFor
from orchestrator.engine.describe import for_items, run_items, run_json
from orchestrator.models import Run
from tests.harness import factory
from tests.harness.factory import Build, make, step_spec, workflow_spec

pytestmark = pytest.mark.django_db

RUN_KEYS = {
    "id", "workflow", "version", "subject_id", "labels", "state", "cause", "compensation", "progress", "where",
    "pending", "current_steps", "input", "output", "submitted_at", "started_at", "finished_at", "deadline_at",
    "updated_at", "cancel_requested_at", "eta", "at_risk", "parent", "steps", "compensations",
}  # fmt: skip
STEP_KEYS = {
    "id", "step", "shard", "kind", "state", "cause", "attempt", "max_attempts", "progress", "queue", "waiting_for",
    "started_at", "finished_at", "output", "error", "children",
}  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def strict(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("stage", factory.STAGES)
def test_every_stage_has_the_shape_of_the_contract(stage: str) -> None:
    run = make("wide", total=30) if stage == "wide" else make(stage)
    found = strict(run_json(run.id))
    assert set(found) >= RUN_KEYS
    for row in found["steps"] + found["compensations"]:
        assert set(row) >= STEP_KEYS
        assert row["id"] is None or isinstance(row["id"], str)
    assert found["id"] == str(run.id)
    assert 0 <= found["progress"] <= 1
    for key in RUN_KEYS:
        if key.endswith("_at") and found[key] is not None:
            assert TIME.fullmatch(found[key])
    order = [row["step"] for row in found["steps"]]
    assert list(dict.fromkeys(order)) == ["probe", "transcode", "captions", "thumbnail", "approve", "notify"]
    assert all(row["kind"] == "compensation" for row in found["compensations"])


def test_steps_without_a_row_are_listed_as_pending() -> None:
    row = run_json(make("queued").id)["steps"][-1]
    assert (row["step"], row["state"], row["id"]) == ("notify", "pending", None)
    assert (row["attempt"], row["max_attempts"]) == (0, 1)


def test_shards_are_rows_in_the_order_of_the_items() -> None:
    rows = [row for row in run_json(make("retrying").id)["steps"] if row["step"] == "transcode"]
    assert [row["shard"] for row in rows] == ["1080p", "720p", "480p"]
    waiting = rows[-1]["waiting_for"]
    assert waiting["kind"] == "retry"
    assert TIME.fullmatch(waiting["until"])
    assert rows[-1]["error"] == {"type": "OSError", "message": factory.ERROR["message"]}


@pytest.mark.parametrize(
    ("stage", "progress"),
    [("queued", 0), ("retrying", (2 + 2 / 3) / 6), ("approving", 4 / 6), ("done", 1), ("failed", (2 + 2 / 3) / 6)],
)
def test_progress_counts_steps_alike_and_a_fan_out_by_its_shards(stage: str, progress: float) -> None:
    run = make(stage)
    assert run_json(run.id)["progress"] == pytest.approx(progress, abs=0.001)
    assert run_items(for_items(Run.objects.all()))[0]["progress"] == pytest.approx(progress, abs=0.001)


def test_current_steps_are_those_under_way() -> None:
    assert run_json(make("retrying").id)["current_steps"] == ["transcode"]
    assert run_json(make("compensating").id)["current_steps"] == ["delete_rendition"]
    assert run_json(make("done").id)["current_steps"] == []


def test_secrets_are_masked_everywhere() -> None:
    run = make(
        "retrying",
        input={"db": {"Password": "s3cr3t-X"}, "url": "redis://:s3cr3t-X@h/0"},
        labels={"api_key": "s3cr3t-X"},
        error={"type": "E", "message": "password=s3cr3t-X"},
    )
    found = json.dumps([run_json(run.id), run_items(for_items(Run.objects.all()))])
    assert "s3cr3t-X" not in found
    assert "[masked]" in found
    assert Run.objects.get().input["db"]["Password"] == "s3cr3t-X"


def test_the_number_of_queries_does_not_grow_with_the_shards(django_assert_max_num_queries: Any) -> None:
    run = make("wide", total=800)
    run_json(run.id)
    with django_assert_max_num_queries(12):
        found = run_json(run.id)
    assert len(found["steps"]) == 805


def test_a_page_of_items_takes_few_queries(django_assert_max_num_queries: Any) -> None:
    for stage in ("queued", "retrying", "failed", "done", "approving", "cancelled"):
        make(stage, subject=stage)
    with django_assert_max_num_queries(12):
        items = run_items(for_items(Run.objects.order_by("-id")))
    assert len(items) == 6
    assert not set(items[0]) & {"input", "output", "steps", "compensations"}


def test_children_and_parent_point_at_each_other() -> None:
    parent = make("mid_fan_out")
    step = parent.steps.get(step="transcode", shard="720p")
    child = make("queued", subject="child", parent_run=parent, parent_step=step)
    rows = run_json(parent.id)["steps"]
    assert next(row for row in rows if row["shard"] == "720p")["children"] == [str(child.id)]
    assert run_json(child.id)["parent"] == {"run_id": str(parent.id), "step": "transcode"}


def test_the_holder_of_a_lock_is_named() -> None:
    spec = workflow_spec("small", 1, [step_spec("a", [])])
    holder = Build(spec, subject="one")
    holder.running("a", ago=3, lock_name="video:1")
    first = holder.save()
    build = Build(spec, subject="two")
    build.row("a", StepState.WAITING, waiting_for=WaitingFor.LOCK, waiting_name="video:1")
    assert run_json(build.save().id)["steps"][0]["waiting_for"] == {
        "kind": "lock", "name": "video:1", "until": None, "holder": str(first.id),
    }  # fmt: skip


def test_a_large_output_is_a_reference() -> None:
    build = Build()
    build.done("probe", ago=60, secs=1, output_ref="runs/x/.outputs/probe/_/abc.json")
    assert run_json(build.save().id)["steps"][0]["output"] == {"artifact": "runs/x/.outputs/probe/_/abc.json"}


def test_an_unknown_run_is_not_found() -> None:
    with pytest.raises(NotFound):
        run_json(uuid.uuid4())
