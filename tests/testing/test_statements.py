"""Where "after the call to the outside" is."""

from __future__ import annotations

import sys

import pytest

from orchestrator.testing.statements import after_next_statement


class Stop(Exception):
    pass


def mark(said: list[str], outermost) -> None:
    """As ``ctx.external``: acts after the statement that follows its caller's."""
    after_next_statement(sys._getframe(1), outermost, lambda: said.append("killed"))


def straight(said, outermost):
    mark(said, outermost)
    said.append("call")
    said.append("after")


def many_lines(said, outermost):
    mark(said, outermost)
    said.append(
        "".join(
            ["ca", "ll"],
        )
    )
    said.append("after")


def in_a_block(said, outermost):
    if said is not None:
        mark(said, outermost)
    for _ in range(1):
        said.append("call")
    said.append("after")


def in_a_loop(said, outermost):
    for name in ("call", "after"):
        if name == "call":
            mark(said, outermost)
        said.append(name)


def at_the_end(said, outermost):
    said.append("call")
    mark(said, outermost)


def helper(said, outermost):
    mark(said, outermost)


def by_a_helper(said, outermost):
    helper(said, outermost)
    said.append("call")
    said.append("after")


def by_a_helper_that_calls(said, outermost):
    def charge():
        mark(said, outermost)
        return said.append("call")

    charge()
    said.append("after")


def with_a_call_that_fails(said, outermost):
    mark(said, outermost)
    [][said.append("call") or 0]
    said.append("after")


def in_a_try(said, outermost):
    try:
        mark(said, outermost)
        said.append("call")
    finally:
        said.append("after")


@pytest.mark.parametrize(
    "handler",
    [
        straight,
        many_lines,
        in_a_block,
        by_a_helper,
        by_a_helper_that_calls,
        with_a_call_that_fails,
        in_a_try,
        in_a_loop,
    ],
)
def test_right_after_the_statement_that_follows(handler) -> None:
    assert run(handler)[:2] == ["call", "killed"]


def test_nothing_follows() -> None:
    assert run(at_the_end) == ["call"], "the end of the handler is the caller's business"


def run(handler) -> list[str]:
    said: list[str] = []
    before = sys.gettrace()
    try:
        handler(said, sys._getframe())
    except IndexError:
        pass
    finally:
        sys.settrace(before)
    return said
