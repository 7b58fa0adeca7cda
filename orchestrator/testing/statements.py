"""Acting right after the statement that follows a line: "the call to the outside has been made".

``ctx.external("charge")`` announces a call; the call itself is the statement behind it. To kill a worker after the
call and before anything else, the frame of the handler is traced until that statement is left.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Region = tuple[int, int]


def after_next_statement(frame: FrameType, outermost: FrameType | None, act: Callable[[], object]) -> None:
    """Calls ``act`` once, when the statement after the current one of ``frame`` has been executed or left.

    Where nothing follows in that function (a helper that marks and returns), its caller's next statement counts, and so
    on up to ``outermost``; nothing there either: ``act`` is not called from here.
    """
    where: FrameType | None = frame
    region = None
    while where is not None and where is not outermost:
        region = next_statement(where.f_code.co_filename, where.f_lineno)
        if region:
            break
        where = where.f_back
    if where is None or region is None:
        return
    first, last = region
    entered = first <= where.f_lineno <= last
    left = False

    def trace(traced: FrameType, event: str, _: Any) -> Any:
        nonlocal entered, left
        inside = first <= traced.f_lineno <= last
        if event == "line":
            left = entered and not inside
            entered = entered or inside
        if left or event == "return":
            traced.f_trace = None
            sys.settrace(None)
            act()
            return None
        return trace

    where.f_trace = trace
    sys.settrace(lambda *_: None)


def next_statement(filename: str, line: int) -> Region | None:
    """First and last line of the statement after the one at ``line``, within the same function; None without one."""
    tree = _tree(filename)
    if tree is None:
        return None
    chain: list[tuple[list[ast.stmt], int]] = []
    _descend(tree, line, chain)
    for body, index in reversed(chain):
        if index + 1 < len(body):
            following = body[index + 1]
            return following.lineno, following.end_lineno or following.lineno
    return None


def _descend(node: ast.AST, line: int, chain: list[tuple[list[ast.stmt], int]]) -> None:
    """Fills ``chain`` with the statements that hold ``line``, outermost first, beginning at its function."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.stmt) or hasattr(child, "body")):
            continue
        if isinstance(child, ast.stmt):
            if not child.lineno <= line <= (child.end_lineno or child.lineno):
                continue
            body = _body_of(node, child)
            if body is not None:
                chain.append((body, body.index(child)))
            if isinstance(child, _FUNCTIONS):
                chain.clear()
        _descend(child, line, chain)
        if isinstance(child, ast.stmt):
            return


def _body_of(node: ast.AST, child: ast.stmt) -> list[ast.stmt] | None:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and any(each is child for each in value):
            return value
    return None


@cache
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse(Path(filename).read_text())
    except (OSError, ValueError, SyntaxError):
        return None
