"""Text that can always be stored: PostgreSQL refuses NUL, UTF-8 refuses lone surrogates, pages refuse megabytes."""

from __future__ import annotations

import json
from typing import Any

LIMIT = 20_000


def clean(text: str, limit: int = LIMIT) -> str:
    """The text with what cannot be stored replaced by U+FFFD, cut in the middle past ``limit`` characters."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"
    text = text.replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def describe_exception(exc: BaseException, limit: int = LIMIT) -> str:
    """The message of an exception, whatever its ``__str__`` does."""
    try:
        return clean(str(exc), limit)
    except Exception as broken:  # a handler's class may raise anything here
        return f"<the error's own __str__ raised {type(broken).__name__}>"


class NotStorable(ValueError):
    """A value that PostgreSQL's jsonb or strict JSON cannot hold; the message says where and why."""


def to_json(value: Any, what: str = "value") -> str:
    """Strict JSON of ``value``.

    Raises:
        NotStorable: for NaN and infinities, types JSON has not, NUL characters, lone surrogates, nesting too deep.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise NotStorable(f"{what} is nested too deeply to be stored") from None
    except (TypeError, ValueError, UnicodeError) as exc:
        raise NotStorable(f"{what} is not JSON: {describe_exception(exc, 300)}") from None
    # The text may hold an escaped backslash before "u0000"; only a real NUL character counts.
    if "\\u0000" in text and _has_nul(value):
        raise NotStorable(f"{what} holds a NUL character (\\u0000), which PostgreSQL cannot store")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise NotStorable(f"{what} holds half of a surrogate pair, which is not valid Unicode text") from None
    return text


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(k) or _has_nul(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return any(_has_nul(v) for v in value)
    return False
