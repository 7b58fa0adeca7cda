"""Hides secrets in what people are shown: pages, API, logs, exports. Handlers always get the real values."""

from __future__ import annotations

import re
from typing import Any

MASK = "[masked]"

_WORDS = (
    "password|passwd|passphrase|pwd|secret|token|api[_\\- ]?key|apikey|access[_\\- ]?key|private[_\\- ]?key|"
    "authorization|credentials?|cookie|session[_\\- ]?id"
)
_SECRET_KEY = re.compile(_WORDS, re.IGNORECASE)
#: ``//user:password@host``; the user name stays, it helps to find the place.
_URL = re.compile(r"(//[^\s/:@\"'<>]{0,256}:)[^\s/\"'<>]{1,1024}@")
#: ``password=…``, ``"token": "…"``, ``Authorization: Bearer …`` inside a text.
_PAIR = re.compile(
    rf"((?:{_WORDS})[\w\-]{{0,40}}[\"']?\s{{0,4}}[:=]\s{{0,4}})((?:bearer|basic|token)\s+)?"
    r"(\"[^\"\n]{1,4096}\"?|'[^'\n]{1,4096}'?|[^\s\"',;&<>{}\[\]()]{1,4096})",
    re.IGNORECASE,
)
#: ``Bearer eyJ…`` without a name in front.
_BEARER = re.compile(r"\b(bearer\s+)[A-Za-z0-9._~+/=\-]{8,4096}", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Whether a value under this key is hidden: ``password``, ``API-Key``, ``authToken``, in any case and nesting."""
    return bool(_SECRET_KEY.search(key))


def mask_text(text: str) -> str:
    """The text with passwords in URLs and values of secret-looking names replaced by :data:`MASK`."""
    if "//" in text:
        text = _URL.sub(rf"\1{MASK}@", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    return _PAIR.sub(lambda m: m[0] if MASK in m[3] else f"{m[1]}{m[2] or ''}{_quoted(m[3])}", text)


def _quoted(value: str) -> str:
    return f"{value[0]}{MASK}{value[0]}" if value[0] in "\"'" else MASK


def mask(value: Any) -> Any:
    """A copy of a JSON value in which nothing secret is left; the shape stays the same.

    A value under a secret key is replaced whole, whatever it holds (``None`` stays); every other text goes through
    :func:`mask_text`.
    """
    if isinstance(value, dict):
        return {k: _under(str(k), v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask(v) for v in value]
    return mask_text(value) if isinstance(value, str) else value


def _under(key: str, value: Any) -> Any:
    return MASK if is_secret_key(key) and value is not None else mask(value)


def mask_error(error: Any) -> dict[str, str] | None:
    """``{type, message}`` of a stored error, masked; None stays None. The traceback is left out."""
    if not isinstance(error, dict):
        return None
    return {"type": str(error.get("type") or "error"), "message": mask_text(str(error.get("message") or ""))}


class StillMasked(ValueError):
    """A value is masked and the original has nothing for its place."""


def unmask(value: Any, original: Any, path: str = "") -> Any:
    """``value`` with what :func:`mask` hid put back from the same place of ``original``.

    Raises:
        StillMasked: something is masked that ``original`` does not have there; the message names the place.
    """
    if isinstance(value, dict):
        old = original if isinstance(original, dict) else {}
        return {
            k: old[k] if v == MASK and k in old and is_secret_key(str(k)) else unmask(v, old.get(k), f"{path}.{k}")
            for k, v in value.items()
        }
    if isinstance(value, list):
        items = original if isinstance(original, list) else []
        return [unmask(v, items[n] if n < len(items) else None, f"{path}[{n}]") for n, v in enumerate(value)]
    if isinstance(value, str) and MASK in value:
        if isinstance(original, str) and mask_text(original) == value:
            return original
        where = path.lstrip(".")[:100] or "the value"
        raise StillMasked(f"{where} is {MASK} here and there is nothing to put in its place; write the value itself")
    return value
