"""Parts of an artifact's key, from texts that anybody may have chosen."""

from __future__ import annotations

import hashlib
import re

from orchestrator.core.errors import Invalid

MAX_SLUG, MAX_NAME = 150, 500
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")
_ESCAPED = re.compile(rb"=([0-9a-f]{2})")


def slug(text: str) -> str:
    """A path segment for any text: no two texts share one, on a file system that ignores case neither.

    Lower-case letters, digits, ``.``, ``_`` and ``-`` stay; other bytes become ``=xx``. The empty text is ``_``.
    Beyond 150 characters it is cut and ends in ``=.`` and a hash; the text then lies beside it in ``<slug>.text``.
    """
    if not text:
        return "_"
    if len(text) <= MAX_SLUG and _PLAIN.fullmatch(text):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    escaped = "".join(
        chr(b) if chr(b) in "abcdefghijklmnopqrstuvwxyz0123456789" or (i and chr(b) in "._-") else f"={b:02x}"
        for i, b in enumerate(raw)
    )
    if len(escaped) <= MAX_SLUG:
        return escaped
    return f"{escaped[:60]}=.{hashlib.sha256(raw).hexdigest()[:40]}"


def unslug(segment: str) -> str | None:
    """The text of a slug, or ``None`` for one that was cut."""
    if segment == "_":
        return ""
    if "=." in segment:
        return None
    raw = _ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), segment.encode())
    return raw.decode("utf-8", "surrogatepass")


def check_name(name: str) -> str:
    """``name`` if it may name an artifact.

    Raises:
        Invalid: if it is empty, absolute, too long, or holds ``..``, a backslash, a control character or the like.
    """
    good = (
        isinstance(name, str)
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and "\\" not in name
        and all(0 < len(part.encode()) <= 200 and part == part.strip(". ") for part in name.split("/"))
    )
    if not good:
        raise Invalid(
            f"{name!r:.80} cannot name an artifact; write a relative name such as out.mp4 or frames/1.jpg, without "
            "'..', a backslash, control characters, or a dot or space at either end of a part",
            field="name",
        )
    return name
