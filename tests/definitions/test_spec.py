"""The normalised form: it reads itself back, and its hash changes with the content and with nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.definitions.parse import load, loads
from orchestrator.definitions.parse_parts import Defaults
from orchestrator.definitions.spec import WorkflowSpec
from tests.definitions.helpers import full, spec

EXAMPLE = Path(__file__).parent / "spec_example.yaml"


def test_the_example_of_the_first_document_loads_unchanged():
    found = load(EXAMPLE).spec
    assert (found.workflow, found.version, found.deadline) == ("video-upload", 3, 7200.0)
    assert found.graph == {"probe": [], "transcode": ["probe"], "thumbnail": ["transcode"], "notify": ["thumbnail"]}
    transcode = found.step("transcode")
    assert transcode.fan_out is not None
    assert transcode.fan_out.items == ["1080p", "720p", "480p"]
    assert (transcode.timeout, transcode.retries, transcode.queue) == (1800.0, 3, "media-heavy")
    assert [undo.name for undo in found.on_failure.compensate] == ["delete_renditions", "release_storage_quota"]
    assert found.on_failure.terminal_state == "failed"


DURATIONS = st.builds("{}{}".format, st.integers(1, 300), st.sampled_from("smhd"))
NAMES = st.text("abcxyz_", min_size=1, max_size=6)
ITEMS = st.lists(
    st.none() | st.booleans() | st.integers(-5, 5) | NAMES | st.lists(st.integers(0, 3), max_size=2), max_size=4
)
BACKOFF = DURATIONS | st.fixed_dictionaries(
    {}, optional={"first": DURATIONS, "factor": st.floats(1, 10), "jitter": st.booleans()}
)
UNDO = NAMES | st.fixed_dictionaries({"handler": NAMES}, optional={"retries": st.integers(0, 9), "timeout": DURATIONS})
HANDLED = st.fixed_dictionaries(
    {},
    optional={
        "queue": NAMES,
        "timeout": DURATIONS,
        "retries": st.integers(0, 5),
        "backoff": BACKOFF,
        "compensate": UNDO,
        "say": st.just("Working"),
        "on_error": st.sampled_from(["fail", "continue"]),
        "topic": NAMES | st.fixed_dictionaries({"name": NAMES}, optional={"limit": st.integers(0, 9)}),
        "lock": st.just("x:{subject_id}"),
    },
)
FANNED = st.fixed_dictionaries(
    {"fan_out": ITEMS},
    optional={"window": st.integers(1, 9), "join": st.sampled_from(["all", "settled", {"at_least": "50%"}])},
)
OTHER = st.fixed_dictionaries({"wait": DURATIONS}) | st.fixed_dictionaries({"workflow": st.just("other")})


@st.composite
def documents(draw):
    steps = []
    for i in range(draw(st.integers(1, 5))):
        body = (
            draw(OTHER)
            if draw(st.integers(0, 4)) == 0
            else draw(HANDLED) | (draw(FANNED) if draw(st.booleans()) else {})
        )
        earlier = [one["id"] for one in steps]
        if earlier and draw(st.booleans()):
            body["after"] = draw(st.lists(st.sampled_from(earlier), unique=True))
            if body["after"]:
                body["when"] = f"{body['after'][0]}.ok"
        steps.append({"id": f"s{i}"} | body)
    top = {"workflow": "w", "version": draw(st.integers(1, 9)), "steps": steps}
    if draw(st.booleans()):
        top["on_failure"] = {"compensate": draw(st.lists(UNDO, max_size=3))}
    return top


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_the_stored_form_reads_itself_back(document):
    text = json.dumps(document)
    loaded = loads(text, not_built=frozenset())
    stored = json.loads(json.dumps(loaded.spec.model_dump(mode="json")))
    again = WorkflowSpec.model_validate(stored)
    assert again == loaded.spec
    assert again.model_dump(mode="json") == loaded.spec.model_dump(mode="json")
    names = [undo.name for undo in again.compensations()]
    assert len(set(names) | {step.id for step in again.steps}) == len(names) + len(again.steps)
    assert loads(text, not_built=frozenset()).content_hash == loaded.content_hash


BASE = "steps: [{id: a, timeout: 5s}, {id: b}]\n"


@pytest.mark.parametrize(
    "same",
    [
        BASE,
        "# a comment\n" + BASE,
        "steps:\n  - timeout: 5s\n    id: a\n  - id: b\n    after: a\n",
        "steps: [{id: a, timeout: 5s}, {id: b, handler: b, queue: default, retries: 0}]\n",
        "steps: [&x {id: a, timeout: 5s}, {id: b, after: [a]}]\non_failure: {}\n",
    ],
)
def test_the_same_content_has_the_same_hash(same):
    assert full(same).content_hash == full(BASE).content_hash


@pytest.mark.parametrize(
    "other",
    [
        "steps: [{id: a, timeout: 6s}, {id: b}]\n",
        "steps: [{id: b}, {id: a, timeout: 5s}]\n",
        "steps: [{id: a, timeout: 5s}, {id: b, after: []}]\n",
        "steps: [{id: a, timeout: 5s}, {id: b, fan_out: []}]\n",
        "steps: [{id: a, timeout: 5s}, {id: b, say: Hello}]\n",
        "steps: [{id: a, timeout: 5s}, {id: b, timeout: 10m}]\n",
        BASE + "deadline: 24h\n",
        BASE + "owner: me\n",
    ],
)
def test_other_content_has_another_hash(other):
    assert full(other).content_hash != full(BASE).content_hash


def test_items_that_are_null_count():
    assert (
        full("steps: [{id: a, fan_out: [{x: null}]}]\n").content_hash
        != full("steps: [{id: a, fan_out: [{}]}]\n").content_hash
    )


def test_another_default_in_the_settings_is_not_another_content():
    other = full(BASE, defaults=Defaults(deadline=1.0, timeout=2.0))
    assert other.content_hash == full(BASE).content_hash
    assert other.spec != full(BASE).spec


def test_the_spec_is_frozen_and_strict():
    found = spec(BASE)
    with pytest.raises(ValidationError):
        found.version = 2
    with pytest.raises(ValidationError):
        WorkflowSpec.model_validate(found.model_dump() | {"extra": 1})
    with pytest.raises(ValidationError):
        WorkflowSpec.model_validate(found.model_dump() | {"deadline": "2h"})
    with pytest.raises(KeyError):
        found.step("zzz")


def test_the_source_is_kept_as_written():
    assert full(BASE).source.endswith(BASE)
