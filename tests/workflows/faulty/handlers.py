"""Handlers that act on a world of files in the folder ``input["world"]``: a file an effect, a line for each time.

``book`` and ``cancel_booking`` are written as they should be, ``charge_blindly`` as no handler should.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.sdk import compensation, step


def _effect(ctx: Any) -> Path:
    """The same file for a step (or shard) and for what undoes it."""
    return Path(ctx.input["world"]) / ctx.artifacts.key("effect").replace("/", ".")


def _call_out(ctx: Any) -> None:
    with _effect(ctx).open("a") as file:
        file.write(f"attempt {ctx.attempt}\n")


@step("faulty.list")
def list_rooms(ctx: Any) -> dict[str, Any]:
    """What to fan out over."""
    return {"rooms": ["a", "b", "c", "d"]}


@step("faulty.book")
def book(ctx: Any) -> str:
    """Idempotent: books once, however often it is called."""
    if not _effect(ctx).exists():
        ctx.external("book")
        _call_out(ctx)
    return _effect(ctx).name


@step("faulty.charge_blindly")
def charge_blindly(ctx: Any) -> None:
    """Wrong: charges once more at each attempt."""
    ctx.external("charge")
    _call_out(ctx)


@compensation("faulty.cancel_booking")
def cancel_booking(ctx: Any) -> None:
    """Idempotent: finds nothing left to cancel the second time."""
    ctx.external("cancel")
    _effect(ctx).unlink(missing_ok=True)


@compensation("faulty.note")
def note(ctx: Any) -> None:
    """Leaves no trace."""
