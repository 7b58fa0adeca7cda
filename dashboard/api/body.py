"""Reads a body strictly: JSON in UTF-8, no key twice, nothing that could not be stored or written out again."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from django.http import HttpRequest
from ninja.parser import Parser

from dashboard.api.errors import ApiError
from orchestrator.core.text import NotStorable, to_json

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 200


class StrictParser(Parser):
    """The body as an object (or, where a call takes it, a list).

    Raises:
        ApiError: 415 for another content type, 400 for what is not strict JSON, 422 for another kind of value.
    """

    def parse_body(self, request: HttpRequest) -> Any:
        """See the class."""
        check_content_type(request)
        value = parse(request.body)
        if not isinstance(value, dict | list):
            raise ApiError(422, "invalid", "the body must be a JSON object")
        return value


def check_content_type(request: HttpRequest) -> None:
    """Only JSON, in UTF-8; a request that does not say is taken at its body's word.

    Raises:
        ApiError: 415.
    """
    kind, given = request.content_type or "", request.content_params or {}
    if kind and kind.lower() != "application/json":
        raise ApiError(415, "unsupported_media_type", f"send Content-Type: application/json, not {kind[:100]}")
    charset = given.get("charset", "utf-8").lower()
    if charset not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise ApiError(415, "unsupported_media_type", f"send the body in UTF-8, not {charset[:100]}")


def parse(raw: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ApiError: 400, with what is wrong and where.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(f"the body is not UTF-8: byte {error.start} cannot be read") from None
    try:
        value = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise _bad(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _bad(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise _bad("the body holds a number too long to be read") from None
    if _depth(value) > MAX_DEPTH:
        raise _bad(f"the body is nested deeper than {MAX_DEPTH} levels")
    try:
        to_json(value, "the body")
    except NotStorable as error:
        raise _bad(str(error)) from None
    return value


def _bad(message: str) -> ApiError:
    return ApiError(400, "invalid_json", message)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _bad(f"the key {twice[:100]!r} stands twice in one object")
    return found


def _no_constant(word: str) -> NoReturn:
    raise _bad(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _bad(f"the number {text[:100]} is too large")
    return number


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
    return depth
