"""Every key of a definition: what it becomes and what it is by default."""

from __future__ import annotations

import pytest

from orchestrator.definitions.parse_parts import Defaults
from orchestrator.definitions.spec import BackoffSpec, FanOutSpec, JoinSpec
from tests.definitions.helpers import full, spec, step

DEFAULT_BACKOFF = BackoffSpec(first=5.0, factor=2.0, max=600.0, jitter=True)


def test_defaults_of_a_workflow():
    found = spec("steps: [{id: a}]\n")
    assert (found.workflow, found.version, found.deadline, found.on_deadline) == ("shop", 1, 86400.0, "fail")
    assert (found.description, found.owner, found.runbook, found.labels) == ("", "", "", {})
    assert found.schedule is found.exclusive is None
    assert found.on_failure.model_dump() == {"compensate": [], "terminal_state": "failed", "hold": None}


def test_defaults_of_a_step():
    found = spec("steps: [{id: a}]\n").step("a")
    assert (found.handler, found.queue, found.timeout, found.retries) == ("a", "default", 600.0, 0)
    assert found.backoff == DEFAULT_BACKOFF
    assert (found.after, found.fan_out, found.window, found.on_error) == ([], None, None, "fail")
    assert found.join == JoinSpec(mode="all", count=None, percent=None)
    assert found.does == "handler"


def test_defaults_come_from_the_settings():
    found = spec("steps: [{id: a, compensate: undo}]\n", defaults=Defaults(deadline=60.0, timeout=7.0))
    undo = found.step("a").compensate
    assert undo is not None
    assert (found.deadline, found.step("a").timeout, undo.timeout) == (60.0, 7.0, 7.0)


def test_top_level_keys():
    found = spec(
        "description: Sells\nowner: team-shop\nrunbook: https://wiki.example/shop\n"
        "labels: {team: shop, tier: 1, hot: true}\ndeadline: 2h\non_deadline: alert\nsteps: [{id: a}]\n"
    )
    assert found.labels == {"team": "shop", "tier": "1", "hot": "true"}
    assert (found.deadline, found.on_deadline, found.owner) == (7200.0, "alert", "team-shop")


@pytest.mark.parametrize(
    ("text", "by", "then"),
    [
        ("subject", "subject", "reject"),
        ("workflow", "workflow", "reject"),
        ("{by: subject, then: wait}", "subject", "wait"),
        ("{by: workflow}", "workflow", "reject"),
    ],
)
def test_exclusive(text, by, then):
    found = spec(f"exclusive: {text}\nsteps: [{{id: a}}]\n").exclusive
    assert found is not None
    assert (found.by, found.then) == (by, then)


def test_schedule():
    text = 'schedule: {cron: "0 3 * * *", timezone: Europe/Paris, subject: "nightly-{date}", overlap: allow}\n'
    found = spec(text + "steps: [{id: a}]\n").schedule
    assert found is not None
    assert found.model_dump() == {
        "cron": "0 3 * * *",
        "timezone": "Europe/Paris",
        "subject": "nightly-{date}",
        "overlap": "allow",
    }
    short = spec('schedule: {cron: "0 0 * * *", subject: x}\nsteps: [{id: a}]\n').schedule
    assert short is not None
    assert (short.timezone, short.overlap) == ("UTC", "skip")


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("10s", {"first": 10.0}),
        ("0s", {"first": 0.0}),
        ("20m", {"first": 1200.0, "max": 1200.0}),
        ("{first: 20m}", {"first": 1200.0, "max": 1200.0}),
        ("{max: 2s}", {"first": 2.0, "max": 2.0}),
        (
            "{first: 2s, factor: 1.5, max: 1m, jitter: false}",
            {"first": 2.0, "factor": 1.5, "max": 60.0, "jitter": False},
        ),
        ("{factor: 1}", {"factor": 1.0}),
        ("{}", {}),
    ],
)
def test_backoff(text, backoff):
    assert step(f"backoff: {text}").backoff == DEFAULT_BACKOFF.model_copy(update=backoff)


def test_compensate_as_a_name_takes_the_queue_of_its_step():
    undo = step("queue: gpu", "compensate: undo_b").compensate
    assert undo is not None
    assert undo.model_dump() == {
        "name": "undo_b",
        "handler": "undo_b",
        "retries": 3,
        "backoff": DEFAULT_BACKOFF.model_dump(),
        "timeout": 600.0,
        "queue": "gpu",
        "undoes": ["b"],
    }


def test_compensate_as_a_mapping():
    undo = step("compensate: {handler: undo, retries: 0, backoff: 1s, timeout: 5s, queue: light}").compensate
    assert undo is not None
    assert (undo.retries, undo.backoff.first, undo.timeout, undo.queue) == (0, 1.0, 5.0, "light")


def test_on_failure_mixes_names_and_mappings():
    found = spec(
        "steps: [{id: probe}, {id: encode}]\n"
        "on_failure:\n  compensate: [wipe, {handler: release, undoes: [probe], retries: 1, queue: light}]\n"
        "  terminal_state: cancelled\n  hold: 30m\n"
    ).on_failure
    wipe, release = found.compensate
    assert (wipe.undoes, wipe.queue, wipe.retries) == (["probe", "encode"], "default", 3)
    assert (release.undoes, release.queue, release.retries) == (["probe"], "light", 1)
    assert (found.terminal_state, found.hold) == ("cancelled", 1800.0)
    assert spec("steps: [{id: a}]\non_failure: {compensate: wipe}\n").on_failure.compensate[0].handler == "wipe"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("steps: [{id: a, compensate: undo}]\n", ["undo"]),
        ("steps: [{id: a, compensate: undo}, {id: b, compensate: undo}]\n", ["undo:a", "undo:b"]),
        ("steps: [{id: undo, compensate: undo}]\n", ["undo:undo"]),
        ("steps: [{id: a, compensate: b}, {id: b}]\n", ["b:a"]),
        ("steps: [{id: a, compensate: u}]\non_failure: {compensate: [u]}\n", ["u:a", "u:on_failure"]),
        (
            "steps: [{id: a}]\non_failure: {compensate: [u, u, u]}\n",
            ["u:on_failure", "u:on_failure:2", "u:on_failure:3"],
        ),
        (
            "steps: [{id: on_failure, compensate: u}]\non_failure: {compensate: [u]}\n",
            ["u:on_failure", "u:on_failure:2"],
        ),
    ],
)
def test_compensations_have_names_of_their_own(text, names):
    assert [undo.name for undo in spec(text).compensations()] == names


@pytest.mark.parametrize(
    ("lines", "after"),
    [((), ["a"]), (("after: []",), []), (("after: a",), ["a"]), (("after: [a]",), ["a"]), (("after: [a, a]",), ["a"])],
)
def test_after(lines, after):
    assert step(*lines).after == after


def test_the_first_step_starts_at_once_and_ids_may_be_numbers():
    found = spec("steps: [{id: 1}, {id: 2}, {id: 3, after: [1, 2]}]\n")
    assert found.graph == {"1": [], "2": ["1"], "3": ["1", "2"]}


@pytest.mark.parametrize(
    ("text", "fan_out"),
    [
        ("[1080p, 720p]", {"items": ["1080p", "720p"], "source": None}),
        ("[]", {"items": [], "source": None}),
        ("[only]", {"items": ["only"], "source": None}),
        ("[1, 1, null, {x: [1]}]", {"items": [1, 1, None, {"x": [1]}], "source": None}),
        ("{from: a.renditions}", {"items": None, "source": "a.renditions"}),
        ("{from: a}", {"items": None, "source": "a"}),
        ("{from: a.list.0.inner}", {"items": None, "source": "a.list.0.inner"}),
    ],
)
def test_fan_out(text, fan_out):
    assert step(f"fan_out: {text}").fan_out == FanOutSpec(**fan_out)


@pytest.mark.parametrize(
    ("text", "join"),
    [
        ("all", ("all", None, None)),
        ("settled", ("settled", None, None)),
        ("{at_least: 2}", ("at_least", 2, None)),
        ("{at_least: 90%}", ("at_least", None, 90)),
        ('{at_least: "100%"}', ("at_least", None, 100)),
    ],
)
def test_join(text, join):
    found = step("fan_out: [1, 2, 3]", f"join: {text}").join
    assert (found.mode, found.count, found.percent) == join


def test_join_on_an_empty_list_is_harmless():
    assert step("fan_out: []", "join: {at_least: 2}").join.count == 2


def test_window_and_join_timeout():
    found = step("fan_out: [1]", "window: 200", "join_timeout: 1h")
    assert (found.window, found.join_timeout) == (200, 3600.0)


@pytest.mark.parametrize(("text", "limit"), [("gpu", None), ("{name: gpu, limit: 4}", 4), ("{name: gpu, limit: 0}", 0)])
def test_topic(text, limit):
    found = step(f"topic: {text}").topic
    assert found is not None
    assert (found.name, found.limit) == ("gpu", limit)


def test_lock():
    found = step('lock: "video:{subject_id}:{input.x}:{a.key}:{shard}"', "on_lock_conflict: dead_letter")
    assert (found.lock, found.on_lock_conflict) == ("video:{subject_id}:{input.x}:{a.key}:{shard}", "dead_letter")


def test_approval_wait_and_child_need_no_handler():
    asked = step("approval: {group: editors, timeout: 2d, on_timeout: approve}")
    assert asked.approval is not None
    assert (asked.does, asked.handler, asked.approval.timeout) == ("approval", "", 172800.0)
    waits = step("wait: 15m")
    assert (waits.does, waits.handler, waits.wait) == ("wait", "", 900.0)
    assert step("wait: 0s").does == "wait"
    child = step(
        "workflow: package-video", "fan_out: [1]", 'subject_id: "{subject_id}/{shard}"', "input: {x: '{item}'}"
    )
    assert (child.does, child.handler, child.input) == ("workflow", "", {"x": "{item}"})
    assert step("workflow: other", 'input: "{a}"').input == "{a}"


def test_handlers_are_listed_with_their_lines():
    loaded = full("steps:\n  - id: a\n    compensate: undo\n  - id: b\n    handler: other\n  - id: c\n    wait: 1s\n")
    assert [(use.handler, use.kind, use.line) for use in loaded.handlers] == [
        ("a", "step", 4),
        ("undo", "compensation", 5),
        ("other", "step", 7),
    ]


def test_when_say_and_on_error():
    found = step("when: a.has_audio", "say: Packing it", "on_error: continue")
    assert (found.when, found.say, found.on_error) == ("a.has_audio", "Packing it", "continue")
    assert step("when: a").when == "a"
