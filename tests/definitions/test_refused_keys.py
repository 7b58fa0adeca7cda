"""What is refused in a definition, with the line and the words a person reads."""

from __future__ import annotations

import pytest

from tests.definitions.helpers import refused, refused_step, spec, step, two_steps


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
        (("workflow: w", "timeout: 2s"), "a child run has its own"),
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
        ("steps: [{id: a}]\nschedule: {cron: '0 0 * * *', subject: '{day}'}\n", 4, "knows {date}, {time}"),
        ("steps: [{id: a}]\nschedule: {cron: '0 0 31 2 *', subject: x}\n", 4, "is not a cron expression"),
        ("steps: [{id: a}]\nschedule: {cron: '0 0 * * *'}\n", 4, "has no `subject`"),
        ("steps: [{id: a}]\non_failure: [x]\n", 4, "`on_failure` must be a mapping, not a list"),
        ("steps: [{id: a}]\non_failure:\n  terminal_state: done\n", 5, "must be failed or cancelled, not 'done'"),
        ("steps: [{id: a}]\non_failure:\n  compensate:\n    - u\n    - 5\n", 7, "must be a handler's name"),
        (
            "steps: [{id: a}]\non_failure:\n  compensate: [{handler: u, undoes: [z]}]\n",
            5,
            "undoes 'z', which is no step",
        ),
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
