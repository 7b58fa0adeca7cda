"""Lists sent as array literals arrive as they were."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.states import StepState
from orchestrator.engine.arrays import NotSimple, literal
from orchestrator.engine.db import connect, rows

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
ITEMS = {
    "text": TEXT,
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float8": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids(),
    "timestamptz": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
}


@pytest.fixture(scope="module")
def conn(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        made = connect("arrays")
        yield made
        made.close()


@pytest.mark.parametrize("kind", list(ITEMS))
def test_a_list_comes_back_as_it_was_sent(conn, kind):
    @given(st.lists(st.none() | ITEMS[kind], max_size=8))
    @settings(max_examples=60, deadline=None, database=None)
    def check(values):
        assert rows(conn, f"SELECT %s::{kind}[] AS got", [values])[0].got == values

    check()


def test_states_go_as_text():
    assert literal([StepState.DONE, None]) == '{"done",NULL}'


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}, object()])
def test_what_is_not_simple_is_left_to_psycopg(value):
    with pytest.raises(NotSimple):
        literal([1, value])


def test_a_list_in_a_list_and_bytes_still_arrive(conn):
    assert rows(conn, "SELECT %s::int[] AS a, %s AS b", [[[1, 2], [3, 4]], [b"x"]])[0] == ([[1, 2], [3, 4]], [b"x"])


def test_empty_and_by_key(conn):
    key = uuid.uuid4()
    found = rows(conn, "SELECT %(none)s::text[] AS none, %(key)s = ANY(%(keys)s::uuid[]) AS there",
                 {"none": [], "key": key, "keys": [key]})[0]  # fmt: skip
    assert (found.none, found.there) == ([], True)
