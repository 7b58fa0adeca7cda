"""Handlers that do nothing."""

from typing import Any

from orchestrator.sdk import step


@step("noop")
def noop(ctx: Any) -> None:
    """Does nothing."""


@step("numbers")
def numbers(ctx: Any) -> list[int]:
    """As many numbers as the input asks for."""
    return list(range(ctx.input["n"]))


@step("count")
def count(ctx: Any) -> int:
    """How many shards the join sees."""
    return len(ctx.output("shard"))


@step("echo")
def echo(ctx: Any) -> Any:
    """Its item."""
    return ctx.item
