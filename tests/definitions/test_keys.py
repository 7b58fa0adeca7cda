"""Every key of a definition: what it becomes, what it is by default, and what is refused."""

from __future__ import annotations

import pytest

from orchestrator.definitions.not_built import NOT_BUILT
from orchestrator.definitions.parse_parts import Defaults
from orchestrator.definitions.spec import BackoffSpec, FanOutSpec, JoinSpec
from tests.definitions.helpers import HEAD, full, refused, refused_step, spec, step, two_steps

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
        ("{first: 2s, factor: 1.5, max: 1m, jitter: false}", {"first": 2.0, "factor": 1.5, "max": 60.0, "jitter": False}),
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
        ("steps: [{id: a}]\non_failure: {compensate: [u, u, u]}\n", ["u:on_failure", "u:on_failure:2", "u:on_failure:3"]),
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
    child = step("workflow: package-video", "fan_out: [1]", 'subject_id: "{subject_id}/{shard}"', "input: {x: '{item}'}")
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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("timeout: 60", "`timeout` 60 is not a duration; write a whole number and s, m, h or d, such as 90s or 2h"),
        ("timeout: 1.5h", "'1.5h' is not a duration"),
        ("timeout: -5s", "is not a duration"),
        ("timeout: 5 s", "is not a duration"),
        ("timeout: 5w", "is not a duration"),
        ("timeout: 0s", "must be longer than 0s"),
        ("timeout: 9999d", "longer than 3650d"),
        ("timeout: [5s]", "a list is not a duration"),
        ("timeout: true", "true is not a duration"),
        ("timeout:", "has no value"),
        ("retries: -1", "must be from 0 to 10,000, not -1"),
        ("retries: 1.5", "must be a whole number, not 1.5"),
        ("retries: true", "must be a whole number, not true"),
        ("retries: many", "must be a whole number, not 'many'"),
        ("retires: 3", "unknown key 'retires'; did you mean `retries`?"),
        ("zzz: 3", "unknown key 'zzz'; known here: after, "),
        ("queue: ''", "must be a name"),
        ("queue: 'a b'", "must be a name"),
        ("handler: {}", "must be a name of letters, digits and . : - _, not a mapping"),
        ("say: ''", "is empty"),
        ("say: 5", "must be text, not 5; quote it"),
        ("backoff: soon", "'soon' is not a duration"),
        ("backoff: {first: 1m, max: 1s}", "`backoff`: `first` (60s) is longer than `max` (1s)"),
        ("backoff: {factor: 0.5}", "must be from 1 to 100, not 0.5"),
        ("backoff: {jitter: yes}", "must be true or false, not 'yes'"),
        ("backoff: {frist: 1s}", "did you mean `first`?"),
        ("compensate: [undo]", "must be a handler's name or {handler: …}, not a list"),
        ("compensate: {retries: 1}", "has no `handler`"),
        ("compensate: {handler: u, undoes: [a]}", "unknown key 'undoes'"),
        ("after: c", "`after` names 'c', which is no step here"),
        ("after: [a, {}]", "must name steps, not a mapping"),
        ("fan_out: 3", "must be a list of items or {from: step.path}, not 3"),
        ("fan_out: a.list", "must be a list of items or {from: step.path}, not 'a.list'"),
        ("fan_out: {form: a}", "has no `from`"),
        ("fan_out: {from: a..b}", "is not a reference"),
        ("window: 5", "needs a `fan_out`"),
        ("join: settled", "needs a `fan_out`"),
        ("topic: {limit: 4}", "has no `name`"),
        ("topic: {name: gpu, limit: -1}", "must be from 0"),
        ("on_lock_conflict: wait", "must be requeue, reject or dead_letter, not 'wait'"),
        ("lock: 'video:{subject}'", "'subject' is no step here"),
        ("lock: 'video:{ subject_id }'", "brace that belongs to no placeholder"),
        ("lock: 'video:{'", "brace that belongs to no placeholder"),
        ("lock: 'video:{item.x}'", "only a step with a `fan_out` has"),
        ("lock: 'video:{subject_id.x}'", "is a plain text"),
        ("lock: 'video:{a..b}'", "is not a placeholder"),
        ("approval: editors", "must be {group: …}, the people who may decide, not 'editors'"),
        ("approval: {timeout: 1d}", "has no `group`"),
        ("approval: {group: e, on_timeout: skip}", "needs a `timeout`"),
        ("wait: 5", "5 is not a duration"),
        ("workflow: Package Video", "must be a name"),
        ("subject_id: x", "only a child run (`workflow:`) takes it"),
        ("input: {}", "only a child run (`workflow:`) takes it"),
        ("when: true", "must be text, not true"),
        ("when: a b", "is not a reference"),
        ("when: c.ok", "'c' is no step here"),
        ("on_error: ignore", "must be fail or continue, not 'ignore'"),
    ],
)
def test_a_bad_value_of_a_step_is_refused_with_its_line(line, reason):
    problems = refused(two_steps(line))
    assert any(reason in problem for problem in problems), problems
    assert problems[0].startswith("shop.yaml:6: step 'b': ")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("wait: 1s", "handler: x"), "exclude each other"),
        (("wait: 1s", "approval: {group: e}"), "exclude each other"),
        (("workflow: w", "handler: x"), "exclude each other"),
        (("wait: 1s", "retries: 1"), "does not belong here"),
        (("wait: 1s", "compensate: u"), "does not belong here"),
        (("approval: {group: e}", "fan_out: [1]"), "does not belong here"),
        (("workflow: w", "retries: 2"), "a child run has its own"),
        (("fan_out: [1, 2]", "join: {at_least: 3}"), "asks for 3 of 2 items"),
        (("fan_out: [1, 2]", "join: {at_least: 0}"), "must be a whole number from 1, or 1% to 100%, not 0"),
        (("fan_out: [1, 2]", "join: {at_least: 0%}"), "must be a whole number from 1"),
        (("fan_out: [1, 2]", "join: {at_least: 101%}"), "must be a whole number from 1"),
        (("fan_out: [1, 2]", "join: {}"), "has no `at_least`"),
        (("fan_out: [1, 2]", "join: some"), "must be all, settled or {at_least: 2}"),
        (("fan_out: [1, 2]", "window: 0"), "must be from 1 to 100,000, not 0"),
        (("fan_out: [1, 2]", "join_timeout: 0s"), "longer than 0s"),
        (("workflow: w", "input: text"), "must be a mapping or one placeholder"),
        (("workflow: w", "input: {x: ['{c.key}']}"), "'c' is no step here"),
    ],
)
def test_keys_that_do_not_go_together(lines, reason):
    assert reason in refused_step(*lines)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("steps: [{id: a}]\nfoo: 1\n", 4, "unknown key 'foo'"),
        ("", 1, "has no `steps`"),
        ("steps:\n", 3, "`steps` has no value"),
        ("steps: []\n", 3, "`steps` must be a list with at least one step, not empty"),
        ("steps: {a: 1}\n", 3, "not a mapping"),
        ("steps:\n  - a\n", 4, "step 1: must be a mapping with an `id`, not 'a'"),
        ("steps:\n  - queue: x\n", 4, "step 1: has no `id`"),
        ("steps:\n  - id: a\n  - {id: a}\n", 5, "step id 'a' is repeated (first on line 4)"),
        ("steps:\n  - id: 'a b'\n", 4, "step 1: `id` must be a name"),
        ("steps:\n  - id: a.b\n", 4, "step 1: `id` must be a name"),
        ("steps: [{id: a}]\ndeadline: 2 hours\n", 4, "`deadline` '2 hours' is not a duration"),
        ("steps: [{id: a}]\non_deadline: shout\n", 4, "must be fail or alert"),
        ("steps: [{id: a}]\nrunbook: javascript:alert(1)\n", 4, "must be a web address"),
        ("steps: [{id: a}]\nlabels: [a]\n", 4, "must be a mapping of names to texts, not a list"),
        ("steps: [{id: a}]\nlabels:\n  x: []\n", 5, "`labels`: `x` must be text"),
        ("steps: [{id: a}]\nexclusive: host\n", 4, "must be subject or workflow, not 'host'"),
        ("steps: [{id: a}]\nexclusive: {then: wait}\n", 4, "has no `by`"),
        ("steps: [{id: a}]\nschedule: daily\n", 4, "must be a mapping with `cron` and `subject`"),
        ("steps: [{id: a}]\nschedule: {cron: '0 99 * * *', subject: x}\n", 4, "is not a cron expression"),
        ("steps: [{id: a}]\nschedule: {cron: '0 0 * * *', subject: x, timezone: Mars/Base}\n", 4, "no known time zone"),
        ("steps: [{id: a}]\nschedule: {cron: '0 0 * * *', subject: x, timezone: ../etc}\n", 4, "no known time zone"),
        ("steps: [{id: a}]\nschedule: {cron: '0 0 * * *', subject: '{day}'}\n", 4, "knows only {date}"),
        ("steps: [{id: a}]\nschedule: {cron: '0 0 * * *'}\n", 4, "has no `subject`"),
        ("steps: [{id: a}]\non_failure: [x]\n", 4, "`on_failure` must be a mapping, not a list"),
        ("steps: [{id: a}]\non_failure:\n  terminal_state: done\n", 5, "must be failed or cancelled, not 'done'"),
        ("steps: [{id: a}]\non_failure:\n  compensate:\n    - u\n    - 5\n", 7, "must be a handler's name"),
        ("steps: [{id: a}]\non_failure:\n  compensate: [{handler: u, undoes: [z]}]\n", 5, "undoes 'z', which is no step"),
        ("steps: [{id: a}]\non_failure: {hold: 0s}\n", 4, "longer than 0s"),
    ],
)
def test_a_bad_top_level_is_refused_with_its_line(text, line, reason):
    problems = refused(text)
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"shop.yaml:{line}: ")
    assert reason in problems[0]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("version: 1\n", "has no `workflow`"),
        ("workflow: w\n", "has no `version`"),
        ("workflow: My_Shop\nversion: 1\n", "must be a name of small letters, digits and -"),
        ("workflow: [w]\nversion: 1\n", "not a list"),
        ("workflow: w\nversion: 0\n", "must be from 1"),
        ("workflow: w\nversion: '1'\n", "must be a whole number, not '1'"),
        ("workflow: w\nversion: 1.0\n", "must be a whole number, not 1.0"),
        ("workflow: w\nversion: 9999999999\n", "must be from 1 to 2,147,483,647"),
    ],
)
def test_bad_names_and_versions(head, reason):
    assert reason in refused("steps: [{id: a}]\n", head=head)[0]


def test_every_mistake_is_told_at_once_in_order_of_lines():
    problems = refused("deadline: soon\nsteps:\n  - id: a\n    retries: x\n  - id: b\n    after: z\n    tiemout: 5s\n")
    assert [problem.split(": ")[0] for problem in problems] == [f"shop.yaml:{n}" for n in (3, 6, 8, 9)]


def test_hundreds_of_mistakes_are_cut_short():
    problems = refused("steps:\n  - id: a\n" + "".join(f"    k{i}: 1\n" for i in range(500)))
    assert len(problems) == 51
    assert "only the first 50 are listed" in problems[-1]


def test_a_fan_out_of_100_000_passes_and_one_more_does_not():
    items = ", ".join(str(i) for i in range(100_000))
    found = step(f"fan_out: [{items}]").fan_out
    assert found is not None
    assert found.items is not None
    assert len(found.items) == 100_000
    assert "`fan_out` has 100,001 items; at most 100,000 are allowed" in refused_step(f"fan_out: [{items}, x]")


def test_1_000_steps_pass():
    assert len(spec("steps:\n" + "".join(f"  - id: s{i}\n" for i in range(1000))).steps) == 1000


NOT_BUILT_EXAMPLES = {
    "exclusive": ("exclusive: subject\nsteps: [{id: a}]\n", "`exclusive` is not built yet in this version"),
    "schedule": ("schedule: {cron: '0 0 * * *', subject: x}\nsteps: [{id: a}]\n", "`schedule` is not built yet"),
    "on_failure.hold": ("steps: [{id: a}]\non_failure: {hold: 1m}\n", "`on_failure`: `hold` is not built yet"),
    "step.approval": (two_steps("approval: {group: e}"), "step 'b': `approval` is not built yet in this version"),
    "step.input": (two_steps("workflow: w", "input: {}"), "step 'b': `input` is not built yet"),
    "step.join_timeout": (two_steps("fan_out: [1]", "join_timeout: 1m"), "step 'b': `join_timeout` is not built yet"),
    "step.lock": (two_steps("lock: x"), "step 'b': `lock` is not built yet"),
    "step.on_lock_conflict": (two_steps("on_lock_conflict: reject"), "step 'b': `on_lock_conflict` is not built yet"),
    "step.subject_id": (two_steps("workflow: w", "subject_id: x"), "step 'b': `subject_id` is not built yet"),
    "step.topic": (two_steps("topic: gpu"), "step 'b': `topic` is not built yet in this version"),
    "step.workflow": (two_steps("workflow: w"), "step 'b': `workflow` is not built yet"),
}


@pytest.mark.parametrize("key", sorted(NOT_BUILT))
def test_what_is_not_built_is_refused_by_name(key):
    text, reason = NOT_BUILT_EXAMPLES[key]
    spec(text)  # the key is understood
    problems = refused(text, not_built=frozenset({key}))
    assert len(problems) == 1
    assert reason in problems[0]


def test_the_head_of_the_tests_is_two_lines():
    assert HEAD.count("\n") == 2
