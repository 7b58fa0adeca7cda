"""YAML to plain data, safely, with a line number for every key and item.

It reads the parser's events one by one and never recurses, so depth, size and number are checked before anything is
built. Plain words are read as YAML 1.2 reads them: ``true``, ``null``, numbers; ``yes``, ``no``, ``on`` and dates are
text. Keys are always text. Anchors, aliases and ``<<`` work as long as what they expand to stays small.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from orchestrator.definitions.errors import DefinitionError, Problem, Problems

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
#: Scalars count one, lists and mappings two. It bounds the time: the largest fan-out fits, little more does.
MAX_NODES = 120_000
MAX_STEPS = 1_000

# The C parser is many times faster; the pure one reads the same and is there where no C library is.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Map(dict[str, Any]):
    """A mapping that knows where it stands: ``line`` of itself, ``lines`` of its keys, all counted from 1."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class Seq(list[Any]):
    """A list that knows where it stands: ``line`` of itself, ``lines`` of its items."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


def read_bytes(path: Path, file: str) -> bytes:
    """The file's bytes; never more than a little over the limit are read.

    Raises:
        DefinitionError: when it cannot be read or is over 1 MB.
    """
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise DefinitionError([Problem(file, 0, f"cannot be read: {error.strerror}")]) from None
    if len(raw) > MAX_BYTES:
        raise _too_large(file)
    return raw


def _too_large(file: str) -> DefinitionError:
    return DefinitionError([Problem(file, 0, "is over 1 MB; a definition is a page or two of YAML")])


def load_yaml(raw: bytes | str, file: str) -> Map:
    """The top mapping of a definition's YAML.

    Raises:
        DefinitionError: not UTF-8, not YAML, over a limit, tags, repeated keys, aliases that grow too large.
    """
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_BYTES:
        raise _too_large(file)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DefinitionError([Problem(file, line, f"is not UTF-8 ({error.reason}); save it as UTF-8")]) from None
    builder = _Builder(file, len(raw))
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
    except yaml.YAMLError as error:
        raise builder.problems.stop(*_syntax(error, text)) from None
    return builder.finish()


def _syntax(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Line and reason of the parser's own complaint."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        context = getattr(error, "context", None)
        problem = getattr(error, "problem", None) or "cannot be understood"
        return mark.line + 1, f"is not YAML: {problem}{f' ({context})' if context else ''}, column {mark.column + 1}"
    position = getattr(error, "position", 0) or 0
    return text.count("\n", 0, position) + 1, f"is not YAML: {getattr(error, 'reason', None) or 'unreadable character'}"


class _Open:
    """A collection whose end has not come yet. ``key`` is set while a mapping waits for that key's value."""

    __slots__ = ("anchor", "key", "key_line", "merges", "node", "size_before")

    def __init__(self, node: Map | Seq, anchor: str | None, size_before: int) -> None:
        self.node = node
        self.anchor = anchor
        self.size_before = size_before
        self.key: str | None = None
        self.key_line = 0
        self.merges: list[Map] = []


class _Builder:
    """Builds the data event by event. ``size`` is what the file would hold with its aliases written out."""

    def __init__(self, file: str, size: int) -> None:
        self.problems = Problems(file)
        self.alias_budget = MAX_BYTES - size
        self.size = 0
        self.nodes = 0
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.root: Any = None
        self.documents = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent):
            self.nodes += 2 if isinstance(event, yaml.CollectionStartEvent) else 1
            if self.nodes > MAX_NODES:
                raise self.problems.stop(line, f"holds over {MAX_NODES:,} values")
            if isinstance(event, yaml.AliasEvent):
                self._alias(event.anchor or "", line)
                return
            tag = getattr(event, "tag", None)
            if tag is not None:
                shown = tag.replace("tag:yaml.org,2002:", "!!")[:60]
                raise self.problems.stop(line, f"YAML tags are not allowed ({shown}); write plain values")
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line)
            else:
                self._open(Map(line) if isinstance(event, yaml.MappingStartEvent) else Seq(line), event.anchor, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.problems.stop(line, "holds a second YAML document; write one definition a file")

    def finish(self) -> Map:
        self.problems.raise_if_any()
        if not self.documents or self.root is None:
            raise self.problems.stop(1, "is empty; write `workflow:`, `version:` and `steps:`")
        if not isinstance(self.root, Map):
            raise self.problems.stop(1, "is not a mapping; begin with `workflow:`, `version:` and `steps:`")
        return self.root

    def _alias(self, name: str, line: int) -> None:
        if any(frame.anchor == name for frame in self.stack):
            raise self.problems.stop(line, f"anchor '{name[:60]}' contains itself")
        if name not in self.anchors:
            raise self.problems.stop(line, f"alias '{name[:60]}' has no anchor before it")
        value, weight = self.anchors[name]
        self.alias_budget -= weight
        if self.alias_budget < 0:
            raise self.problems.stop(line, f"anchors expand past 1 MB (at alias '{name[:60]}')")
        self.size += weight
        self._place(value, line)

    def _scalar(self, event: Any, line: int) -> None:
        text: str = event.value
        self.size += len(text) + 2
        if _UNSTORABLE.search(text):
            raise self.problems.stop(line, "holds a NUL character or half of a surrogate pair, which cannot be stored")
        frame = self.stack[-1] if self.stack else None
        plain = event.style is None or event.style == ""
        if frame is not None and isinstance(frame.node, Map) and frame.key is None:
            frame.key, frame.key_line = ("\x00<<" if plain and text == "<<" else text), line
            if event.anchor is not None:
                self.anchors[event.anchor] = (text, len(text) + 2)
            return
        value = self._resolve(text, line) if plain else text
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, len(text) + 2)
        self._place(value, line)

    def _resolve(self, text: str, line: int) -> Any:
        """A plain scalar by the core schema of YAML 1.2."""
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in "0123456789+-.":
            return text
        if _INT.fullmatch(text):
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            if len(text) <= 20 and abs(number := int(text, base)) < 2**63:
                return number
            raise self.problems.stop(line, f"the number {text[:30]} is too large; quote it to keep it as text")
        if _FLOAT.fullmatch(text):
            value = math.inf if text[-1] in "fFnN" else float(text)
            if math.isfinite(value):
                return value
            raise self.problems.stop(line, f"{text[:30]!r} is not a number that JSON has; quote it to keep it as text")
        return text

    def _open(self, node: Map | Seq, anchor: str | None, line: int) -> None:
        if self.stack and isinstance(self.stack[-1].node, Map) and self.stack[-1].key is None:
            raise self.problems.stop(line, "a key must be plain text, not a list or a mapping")
        if len(self.stack) >= MAX_DEPTH:
            raise self.problems.stop(line, f"is nested deeper than {MAX_DEPTH} levels")
        self.size += 2
        self.stack.append(_Open(node, anchor, self.size))

    def _close(self) -> None:
        frame = self.stack.pop()
        if isinstance(frame.node, Map):
            for merged in frame.merges:
                for key in [key for key in merged if key not in frame.node]:
                    frame.node[key] = merged[key]
                    frame.node.lines[key] = merged.lines[key]
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (frame.node, self.size - frame.size_before + 2)
        self._place(frame.node, frame.node.line)

    def _place(self, value: Any, line: int) -> None:
        """Put a finished value where it belongs."""
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        node = frame.node
        if isinstance(node, Seq):
            node.append(value)
            node.lines.append(line)
            if len(node) > MAX_STEPS and len(self.stack) == 2 and self.stack[0].key == "steps":
                raise self.problems.stop(line, f"has more than {MAX_STEPS:,} steps")
        elif frame.key is None:
            # Only an alias gets here as a key: *name: value.
            if not isinstance(value, str):
                raise self.problems.stop(line, "a key must be plain text")
            frame.key, frame.key_line = value, line
        else:
            key, frame.key = frame.key, None
            if key == "\x00<<":
                self._merge(frame, value, line)
            elif key in node:
                self.problems.add(frame.key_line, f"key '{key[:60]}' is repeated (first on line {node.lines[key]})")
            else:
                node[key] = value
                node.lines[key] = frame.key_line

    def _merge(self, frame: _Open, value: Any, line: int) -> None:
        sources = value if isinstance(value, Seq) else [value]
        if not all(isinstance(source, Map) for source in sources):
            raise self.problems.stop(line, "`<<` takes an alias of a mapping, or a list of them")
        frame.merges.extend(sources)
