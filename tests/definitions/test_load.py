"""YAML: what is read, what is refused, and that nothing makes it slow or large (C80)."""

from __future__ import annotations

import json
import resource
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.definitions import load
from orchestrator.definitions.errors import DefinitionError
from orchestrator.definitions.load import load_yaml
from tests.definitions.helpers import HEAD


def refusal(raw: bytes | str) -> str:
    with pytest.raises(DefinitionError) as caught:
        load_yaml(raw, "f.yaml")
    assert len(caught.value.problems) == 1
    return str(caught.value.problems[0])


STEPS = HEAD + "steps:\n"
NINE = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
BOMBS = {
    "nine levels of nine": (NINE, "anchors expand past 1 MB"),
    "mappings of mappings": (
        "a0: &a0 {k: xxxxxxxxxx}\n"
        + "".join(f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}\n" for i in range(1, 10)),
        "anchors expand past 1 MB",
    ),
    "one large text, many times": (f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 200)}]\n", "anchors expand"),
    "itself in a list": ("a: &a [*a]\n", "anchor 'a' contains itself"),
    "itself in a mapping": ("a: &a {b: [*a]}\n", "anchor 'a' contains itself"),
    "itself at the top": ("&a {b: *a}\n", "anchor 'a' contains itself"),
    "deep lists": ("a: " + "[" * 60 + "[" * 10_000 + "]" * 10_060, "nest"),
    "deep lists, never closed": ("[" * 1_000_000, "nest"),
    "deep mappings": ("{a: " * 10_000 + "}" * 10_000, "nested deeper than 64"),
    "deep blocks": ("- " * 10_000 + "x", "nested deeper than 64"),
    "deep indents": ("".join(" " * i + "a:\n" for i in range(1300)), "nested deeper than 64"),
    "5 MB": ("a: " + "x" * 5_000_000, "is over 1 MB"),
    "50,000 steps": (STEPS + "- {id: a}\n" * 50_000, "more than 1,000 steps"),
    "1,001 steps": (STEPS + "".join(f"- id: s{i}\n" for i in range(1001)), "more than 1,000 steps"),
    "values without end": ("a: [" + "{}," * 340_000 + "]", "holds over 120,000 values"),
    "keys without end": ("".join(f"k{i}: 1\n" for i in range(90_000)), "holds over 120,000 values"),
    "a number without end": ("a: " + "9" * 500_000, "is too large"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_at_once_and_in_little_memory(name):
    raw, reason = BOMBS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    message = refusal(raw)
    assert time.process_time() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80 * 1024, "KiB"
    assert reason in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("raw", "where", "reason"),
    [
        (b"a: 1\nb: \xff\n", "f.yaml:2", "is not UTF-8"),
        ("a: é".encode("latin-1"), "f.yaml:1", "is not UTF-8"),
        ("a: b".encode("utf-16"), "f.yaml:1", "is not UTF-8"),
        (b"\xed\xa0\x80", "f.yaml:1", "is not UTF-8"),
        ("a: \x00", "f.yaml:1", "is not YAML"),
        ('a:\n - "\\0"', "f.yaml:2", "NUL"),
        ('a: "\\ud800"', "f.yaml:1", ""),
        ("a: !!python/object/apply:os.system [ls]", "f.yaml:1", "tags are not allowed (!!python/object/apply"),
        ("a: !!str 1", "f.yaml:1", "tags are not allowed (!!str)"),
        ("a: !mine {}", "f.yaml:1", "tags are not allowed (!mine)"),
        ("a:\n - ! b", "f.yaml:2", "tags are not allowed"),
        ("a: 1\nb: 2\na: 3", "f.yaml:3", "key 'a' is repeated (first on line 1)"),
        ("x:\n  - {id: a, 'id': b}", "f.yaml:2", "key 'id' is repeated (first on line 2)"),
        ("1: a\n'1': b", "f.yaml:2", "key '1' is repeated"),
        ("a: *b", "f.yaml:1", "alias 'b' has no anchor"),
        ("? [a]\n: b", "f.yaml:1", "a key must be plain text"),
        ("a: 1\n---\nb: 2", "f.yaml:2", "second YAML document"),
        ("a: [1,\nb: [2\n", "f.yaml:3", "is not YAML"),
        ("a:\n\t- b", "f.yaml:2", "is not YAML"),
        ("", "f.yaml:1", "is empty"),
        ("# only this\n", "f.yaml:1", "is empty"),
        ("---\n...\n", "f.yaml:1", "is empty"),
        ("- a", "f.yaml:1", "is not a mapping"),
        ("text", "f.yaml:1", "is not a mapping"),
        ("a: .nan", "f.yaml:1", "not a number that JSON has"),
        ("a: -.inf", "f.yaml:1", "not a number that JSON has"),
        ("a: 1e999", "f.yaml:1", "not a number that JSON has"),
        ("a: 99999999999999999999", "f.yaml:1", "too large"),
        ("a: {<<: 1}", "f.yaml:1", "`<<` takes"),
    ],
)
def test_refused_with_its_line(raw, where, reason):
    message = refusal(raw)
    assert message.startswith(where + ": ")
    assert reason in message


def test_every_repeated_key_is_told_at_once():
    with pytest.raises(DefinitionError) as caught:
        load_yaml("a: 1\na: 2\nb:\n  c: 1\n  c: 2\n", "f.yaml")
    assert [problem.line for problem in caught.value.problems] == [2, 5]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("1080p", "1080p"),
        ("10:30", "10:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("-", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("é 🚂", "é 🚂"),
    ],
)
def test_scalars_as_yaml_1_2_has_them(text, value):
    if text == "-":
        assert load_yaml("a: ['-']", "f.yaml") == {"a": ["-"]}
    else:
        found = load_yaml(f"a: {text}\n", "f.yaml")["a"]
        assert found == value
        assert type(found) is type(value)


def test_keys_are_text():
    assert load_yaml("{1: a, true: b, on: c}", "f.yaml") == {"1": "a", "true": "b", "on": "c"}


def test_honest_anchors_work():
    data = load_yaml("a: &x {first: 5s, max: 1m}\nb: *x\nc: {<<: *x, max: 2m}\nd: &k key\n*k : v\n", "f.yaml")
    assert data["b"] == {"first": "5s", "max": "1m"}
    assert data["c"] == {"first": "5s", "max": "2m"}
    assert data["key"] == "v"


def test_merged_mappings_give_way_to_earlier_ones_and_to_own_keys():
    data = load_yaml("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {z: 3, <<: [*a, *b]}\n", "f.yaml")
    assert data["c"] == {"x": 1, "y": 1, "z": 3}


def test_lines_are_kept():
    data = load_yaml("a: 1\nb:\n  - x\n  - c: 1\n    d: 2\n", "f.yaml")
    assert data.lines == {"a": 1, "b": 2}
    assert data["b"].lines == [3, 4]
    assert data["b"][1].lines == {"c": 4, "d": 5}


def test_a_byte_order_mark_is_no_mistake():
    assert load_yaml(b"\xef\xbb\xbfa: 1", "f.yaml") == {"a": 1}


def test_a_large_file_is_not_read_whole(tmp_path):
    path = tmp_path / "big.yaml"
    with path.open("wb") as handle:
        handle.truncate(50 * 1024**3)  # sparse: reading it all would fill the memory
    with pytest.raises(DefinitionError, match="big: is over 1 MB"):
        load.read_bytes(path, "big")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DefinitionError, match="gone: cannot be read: No such file"):
        load.read_bytes(tmp_path / "gone.yaml", "gone")


def test_the_parser_without_c_reads_the_same(monkeypatch):
    text = "a: &x [1, two, {c: 3}]\nb: *x\nc: 'q'\n"
    fast = load_yaml(text, "f.yaml")
    monkeypatch.setattr(load, "_Loader", yaml.SafeLoader)
    slow = load_yaml(text, "f.yaml")
    assert fast == slow
    assert fast.lines == slow.lines
    assert "tags are not allowed" in refusal("a: !!str x")
    assert "nested deeper" in refusal("[" * 5_000)
    assert "is not YAML" in refusal("a: \x00")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.text(st.characters(codec="utf-8", min_codepoint=1, max_codepoint=0xFFFF)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abcxyz", min_size=1), JSON, min_size=1, max_size=4))
def test_json_is_read_as_it_is(value):
    # Python escapes all that is not ASCII. Pairs of escaped surrogates (beyond U+FFFF) are JSON, but not YAML.
    assert load_yaml(json.dumps(value), "f.yaml") == value


@given(st.binary(max_size=300) | st.text("{}[]:,-&*!|>'\"#? \n\tab<1~%@", max_size=80).map(str.encode))
def test_nothing_but_a_definition_error_comes_out(raw):
    try:
        load_yaml(raw, "f.yaml")
    except DefinitionError as error:
        assert error.problems
