"""Lists as PostgreSQL's array literals: the hot statements carry dozens of them, and psycopg's general way is slow."""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID


class NotSimple(Exception):
    """The list holds something that is left to psycopg."""


def literal(values: list[Any]) -> str:
    """``[1, None]`` as ``{1,NULL}``. The statement says the type (``%s::int[]``, or ``column = ANY(%s)``).

    Raises:
        NotSimple: an item is neither None, text, number, UUID nor date.
    """
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (int, float)):
        return repr(value) if type(value) in (int, float) else repr(value + 0)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    raise NotSimple


def with_literals(params: Any) -> Any:
    """The parameters of a statement, their lists as literals."""
    if isinstance(params, dict):
        return {name: _converted(value) for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return [_converted(value) for value in params]
    return params


def _converted(value: Any) -> Any:
    if type(value) is not list:
        return value
    try:
        return literal(value)
    except NotSimple:
        return value
