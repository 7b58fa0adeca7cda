"""The pure rules: waits, names of shards, fingerprints, legal moves, templates, durations, text that can be stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.durations import BadDuration, format_duration, parse_duration
from orchestrator.core.fingerprint import fingerprint
from orchestrator.core.ids import new_run_id
from orchestrator.core.lifecycle import RUN_MOVES, STEP_MOVES, after_failure, run_may, step_may
from orchestrator.core.retry import backoff_delay
from orchestrator.core.shards import shard_names
from orchestrator.core.states import (
    NODE_SATISFIED,
    NODE_TERMINAL,
    RUN_TERMINAL,
    STEP_TERMINAL,
    Cause,
    NodeState,
    RunState,
    StepState,
    is_terminal,
)
from orchestrator.core.templates import MISSING, follow, render
from orchestrator.core.text import NotStorable, clean, describe_exception, to_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.integers(1, 10_000),
    st.floats(0, 1e5),
    st.floats(1, 100),
    st.floats(0, 1e6),
    st.booleans(),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_longer_than_its_maximum(failures, first, factor, maximum, jitter, rand):
    wait = backoff_delay(failures, first=first, factor=factor, maximum=maximum, jitter=jitter, rand=lambda: rand)
    assert 0 <= wait <= maximum
    plain = backoff_delay(failures, first=first, factor=factor, maximum=maximum, jitter=False)
    assert 0.8 * plain <= wait <= plain or wait == plain


def test_waits_double_up_to_the_maximum():
    waits = [backoff_delay(n, first=5, factor=2, maximum=60, jitter=False) for n in range(1, 7)]
    assert waits == [5, 10, 20, 40, 60, 60]


@given(st.lists(JSON, max_size=30))
def test_shards_have_names_that_are_unique_and_fit(items):
    names = shard_names(items)
    assert len(names) == len(items)
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= 200 and "\x00" not in name for name in names)
    for name in names:
        name.encode("utf-8")


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ([], []),
        (["1080p", "720p"], ["1080p", "720p"]),
        ([1, 2.5, True, None], ["1", "2.5", "true", "null"]),
        ([1, "1"], ["0", "1"]),
        ([1, 1], ["0", "1"]),
        ([True, "true"], ["0", "1"]),
        ([{"a": 1}, "x"], ["0", "1"]),
        ([""], ["0"]),
        (["x" * 201], ["0"]),
        (["\ud800"], ["0"]),
        (["a\x00"], ["0"]),
    ],
)
def test_names_of_shards(items, names):
    assert shard_names(items) == names


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("order 17 not found", "order 18 not found", True),
        ("at 0x7f00aa: no", "at 0x7f11bb: no", True),
        ("file '/a/b' missing", "file '/c/d' missing", True),
        ("run 6f0a3f6e-0000-4000-8000-000000000001", "run 6f0a3f6e-0000-4000-8000-00000000000f", True),
        ("first\nsecond", "first\nthird", True),
        ("disk full", "disk empty", False),
    ],
)
def test_failures_that_are_alike(one, other, alike):
    prints = [fingerprint("w", "a", "error", "E", text) for text in (one, other)]
    assert (prints[0] == prints[1]) is alike
    assert len(prints[0]) == 16


def test_other_steps_causes_and_types_are_other_failures():
    prints = {
        fingerprint(*parts)
        for parts in (
            ("w", "a", "error", "E", "x"),
            ("v", "a", "error", "E", "x"),
            ("w", "b", "error", "E", "x"),
            ("w", "a", "timeout", "E", "x"),
            ("w", "a", "error", "F", "x"),
        )
    }
    assert len(prints) == 5


@given(st.text())
def test_a_fingerprint_can_be_taken_of_anything(text):
    fingerprint("w", "s", "error", "E", text)


def test_only_people_leave_a_final_state():
    for state in RUN_TERMINAL:
        assert RUN_MOVES[state] <= {RunState.RUNNING, RunState.COMPENSATING}
    assert RUN_MOVES[RunState.DONE] == frozenset()
    for state in STEP_TERMINAL:
        assert STEP_MOVES[state] == {StepState.PENDING}


def test_every_state_is_in_the_tables_and_every_run_can_end():
    assert set(RUN_MOVES) == set(RunState)
    assert set(STEP_MOVES) == set(StepState)
    for state in set(RunState) - RUN_TERMINAL:
        assert any(run_may(state, end) for end in RUN_TERMINAL)
    for state in set(StepState) - STEP_TERMINAL:
        assert any(step_may(state, end) for end in STEP_TERMINAL)
    assert not run_may("compensating", "done")
    assert not step_may("pending", "running")
    assert all(is_terminal(s) for s in STEP_TERMINAL | RUN_TERMINAL)
    assert not any(is_terminal(s) for s in ("pending", "queued", "running", "waiting", "compensating"))
    assert NODE_SATISFIED < NODE_TERMINAL
    assert len({str(letter) for letter in NodeState}) == len(NodeState)
    assert all(len(letter) == 1 for letter in NodeState)


@given(st.sampled_from(list(Cause)), st.integers(1, 20), st.integers(1, 20), st.floats(-5, 1e6), st.booleans())
def test_a_failed_attempt_waits_while_tries_are_left(cause, attempt, most, delay, permanent):
    ending = after_failure(cause, attempt, most, delay, permanent=permanent)
    assert ending.cause == cause
    if permanent or attempt >= most:
        assert (ending.state, ending.delay) == (StepState.FAILED, None)
    else:
        assert ending.state == StepState.WAITING
        assert ending.delay == (0 if cause is Cause.WORKER_LOST else max(0.0, delay))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ([], {"a": [{"b": 0}], "": 1}),
        (["a"], [{"b": 0}]),
        (["a", "0", "b"], 0),
        (["a", "1"], MISSING),
        (["a", "x"], MISSING),
        (["b"], MISSING),
        (["a", "0", "b", "c"], MISSING),
        ([""], 1),
    ],
)
def test_following_a_path(path, found):
    assert follow({"a": [{"b": 0}], "": 1}, path) == found


def test_a_lone_field_keeps_its_type_and_others_become_text():
    values = {"n": 3, "s": "x", "o": {"a": 1}}
    given_ = {"lone": "{n}", "text": "{n}-{s}-{o}", "list": ["{o}"], "plain": 5, "none": "no field { here"}
    assert render(given_, values.__getitem__) == {
        "lone": 3,
        "text": '3-x-{"a": 1}',
        "list": [{"a": 1}],
        "plain": 5,
        "none": "no field { here",
    }


@given(st.integers(0, 10**8), st.sampled_from("smhd"))
def test_durations(number, unit):
    assert parse_duration(f"{number}{unit}") == number * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]


NO_DURATIONS = ["", "5", "5 s", "1.5h", "-1s", "1h30m", "s", None, 5, True, "1w", "\u0661s", "1s\n", "9" * 10 + "s"]


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_what_is_no_duration(text):
    with pytest.raises(BadDuration, match="write a whole number"):
        parse_duration(text)


@given(st.floats(-1e9, 1e9))
def test_every_number_of_seconds_can_be_said(seconds):
    assert format_duration(seconds)


@given(st.text(alphabet=st.characters(), max_size=200) | st.just("\x00") | st.just("\ud800"))
def test_clean_text_can_always_be_stored(text):
    cleaned = clean(text + "\x00\ud83d", limit=100)
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert len(cleaned) < 200


@given(JSON)
def test_what_can_be_stored_comes_back(value):
    try:
        text = to_json(value)
    except NotStorable as refused:
        assert "NUL" in str(refused) or "surrogate" in str(refused)
        return
    assert json.loads(text) == value
    text.encode("utf-8")


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, object(), b"x", "a\x00", {"k\x00": 1}, ["\ud800"], {1: {2: {3}}}, 1j],
)
def test_what_cannot_be_stored_says_so(value):
    with pytest.raises(NotStorable, match="output"):
        to_json(value, "output")


def test_nesting_without_end_is_refused():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotStorable, match="nested too deeply"):
        to_json(deep)


def test_an_escaped_backslash_is_no_nul():
    assert json.loads(to_json("\\u0000")) == "\\u0000"


def test_an_exception_that_cannot_be_described():
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert "ValueError" in describe_exception(Broken())


def test_run_ids_sort_by_time():
    ids = [new_run_id(ms) for ms in (1, 2, 3, 1_700_000_000_000)]
    assert ids == sorted(ids)
    assert all(i.version == 7 for i in ids)
    assert len({new_run_id(5) for _ in range(1000)}) == 1000
