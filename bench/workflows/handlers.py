"""Handlers that do nothing but what every peer's do: a join counts its parts, the last step leaves its mark."""

from __future__ import annotations

from typing import Any

from bench.peers.common import mark
from orchestrator.sdk import step


@step("noop")
def noop(ctx: Any) -> str:
    """Does nothing."""
    return ctx.step


@step("last")
def last(ctx: Any) -> str:
    """The end of a run: writes when it was."""
    mark(ctx.subject_id)
    return "done"


@step("numbers")
def numbers(ctx: Any) -> list[int]:
    """As many numbers as the input asks for."""
    return list(range(ctx.input["n"]))


@step("part")
def part(ctx: Any) -> str:
    """One shard."""
    return f"p{ctx.item}"


@step("join")
def join(ctx: Any) -> str:
    """Counts the parts; a run that lost one does not finish."""
    found = len(ctx.output("part"))
    if found != ctx.input["n"]:
        raise RuntimeError(f"join got {found} of {ctx.input['n']}")
    mark(ctx.subject_id)
    return "joined"


@step("thumbnail")
def thumbnail(ctx: Any) -> str:
    """The fan-in of three transcodes."""
    if len(ctx.output("transcode")) != 3:
        raise RuntimeError("fan-in lost a part")
    return "thumb"
