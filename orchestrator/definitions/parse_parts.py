"""The parts of a step that have a grammar of their own: backoff, compensation, fan-out, join, topic, approval."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core.shards import MAX_ITEMS
from orchestrator.core.states import Kind
from orchestrator.definitions.errors import Problems
from orchestrator.definitions.fields import DOTTED, MAX_RETRIES, Fields, show
from orchestrator.definitions.load import Map, Seq
from orchestrator.definitions.templates import BadTemplate, Placeholder, parse_reference, placeholders

BACKOFF = {"first": 5.0, "factor": 2.0, "max": 600.0, "jitter": True}
COMPENSATION_RETRIES = 3
_PERCENT = re.compile(r"([0-9]{1,3})%")

Draft = dict[str, Any]


@dataclass(frozen=True)
class Defaults:
    """What a definition gets that does not say otherwise; both in seconds."""

    deadline: float = 86400.0
    timeout: float = 600.0


@dataclass(frozen=True)
class HandlerUse:
    """A handler's name where the definition uses it. ``where`` begins a message about it."""

    handler: str
    kind: Kind
    line: int
    where: str


@dataclass(frozen=True)
class Reference:
    """A step's output named in another step: in ``when``, in ``fan_out.from`` or in a template."""

    step: str
    key: str
    line: int
    target: Placeholder
    template: bool


@dataclass
class Context:
    """What is gathered while one file is read."""

    problems: Problems
    defaults: Defaults
    handlers: list[HandlerUse] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)


def plain(value: Any) -> Any:
    """The same JSON without line numbers."""
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list):
        return [plain(child) for child in value]
    return value


def backoff(fields: Fields) -> Draft:
    """``10s`` or ``{first, factor, max, jitter}``. A first wait over the default maximum raises that maximum."""
    value = fields.raw("backoff")
    if value is None:
        return dict(BACKOFF)
    if not isinstance(value, Map):
        first = fields.as_duration("backoff", value, BACKOFF["first"], zero=True)
        assert first is not None
        return BACKOFF | {"first": first, "max": max(first, BACKOFF["max"])}
    inner = Fields(fields.problems, value, f"{fields.where}`backoff`: ")
    first = inner.duration("first", None, zero=True)
    longest = inner.duration("max", None, zero=True)
    if first is not None and longest is not None and first > longest:
        inner.bad("first", f"({first:g}s) is longer than `max` ({longest:g}s)")
    draft = {
        "first": first if first is not None else min(BACKOFF["first"], BACKOFF["max"] if longest is None else longest),
        "factor": inner.number("factor", BACKOFF["factor"], low=1, high=100),
        "max": longest if longest is not None else max(first or 0.0, BACKOFF["max"]),
        "jitter": inner.boolean("jitter", True),
    }
    inner.finish()
    return draft


def compensation(
    context: Context, fields: Fields, key: str, value: Any, line: int, queue: str, undoes: list[str] | None
) -> Draft | None:
    """A handler's name or ``{handler, retries, backoff, timeout, queue}``; its row's name is given later.

    ``undoes`` None: the entry may name the steps itself (``on_failure``), and the draft has None when it does not.
    """
    if isinstance(value, Map):
        inner = Fields(fields.problems, value, f"{fields.where}`{key}`: ")
    elif isinstance(value, str) and DOTTED.fullmatch(value):
        inner = Fields(fields.problems, _just_handler(value, line), f"{fields.where}`{key}`: ")
    else:
        reason = f"must be a handler's name or {{handler: …}}, not {show(value)}"
        fields.problems.add(line, f"{fields.where}`{key}` {reason}")
        return None
    handler = inner.name("handler", dotted=True)
    if not inner.has("handler"):
        inner.bad(None, "has no `handler`")
    draft: Draft = {
        "name": "",
        "handler": handler or "",
        "retries": inner.integer("retries", COMPENSATION_RETRIES, low=0, high=MAX_RETRIES),
        "backoff": backoff(inner),
        "timeout": inner.duration("timeout", context.defaults.timeout),
        "queue": inner.name("queue", queue, dotted=True),
        "undoes": undoes if undoes is not None else names(inner, "undoes"),
    }
    inner.finish()
    if handler:
        context.handlers.append(HandlerUse(handler, Kind.COMPENSATION, inner.line("handler"), f"{fields.where}`{key}`"))
    return draft


def _just_handler(name: str, line: int) -> Map:
    data = Map(line)
    data["handler"] = name
    data.lines["handler"] = line
    return data


def names(fields: Fields, key: str) -> list[str] | None:
    """One step's id or a list of them, each once; None when absent."""
    value = fields.raw(key)
    if value is None:
        return None
    found: dict[str, None] = {}

    def take(item: Any, line: int) -> None:
        if isinstance(item, int) and not isinstance(item, bool):
            item = str(item)
        if isinstance(item, str):
            found[item] = None
        else:
            fields.problems.add(line, f"{fields.where}`{key}` must name steps, not {show(item)}")

    fields.each(key, value, take)
    return list(found)


def fan_out(context: Context, fields: Fields, step: str) -> Draft | None:
    """A list of items or ``{from: step.path}``."""
    value = fields.raw("fan_out")
    if value is None:
        return None
    if isinstance(value, Seq):
        if len(value) > MAX_ITEMS:
            fields.bad("fan_out", f"has {len(value):,} items; at most {MAX_ITEMS:,} are allowed")
            return {"items": [], "source": None}
        return {"items": plain(value), "source": None}
    inner = fields.inner("fan_out", value, "a list of items or {from: step.path}")
    if inner is None:
        return None
    source = inner.text("from")
    if not inner.has("from"):
        inner.bad(None, "has no `from`; write {from: step.path}")
    inner.finish()
    if source is not None:
        reference(context, inner, step, "from", source, "fan_out.from")
    return {"items": None, "source": source}


def reference(context: Context, fields: Fields, step: str, key: str, text: str, label: str) -> None:
    """Note that ``text`` (``step`` or ``step.path``) must name a step before this one."""
    try:
        target = parse_reference(text)
    except BadTemplate as error:
        fields.bad(key, str(error))
        return
    context.references.append(Reference(step, label, fields.line(key), target, template=False))


def templates(context: Context, fields: Fields, step: str, key: str, value: Any) -> None:
    """Note every placeholder in a value; they are checked when all steps are known."""
    try:
        for target in placeholders(plain(value)):
            context.references.append(Reference(step, key, fields.line(key), target, template=True))
    except BadTemplate as error:
        fields.bad(key, str(error))


def join(fields: Fields, items: int | None) -> Draft:
    """``all``, ``settled``, ``{at_least: 2}`` or ``{at_least: 90%}``. ``items``: how many, where that is known."""
    draft: Draft = {"mode": "all", "count": None, "percent": None}
    value = fields.raw("join")
    if value is None:
        return draft
    if value in ("all", "settled"):
        return draft | {"mode": str(value)}
    inner = fields.inner("join", value, "all, settled or {at_least: 2} or {at_least: 90%}")
    if inner is None:
        return draft
    least = inner.raw("at_least")
    inner.finish()
    percent = _PERCENT.fullmatch(least) if isinstance(least, str) else None
    if not inner.has("at_least"):
        inner.bad(None, "has no `at_least`; write all, settled or {at_least: 2} or {at_least: 90%}")
    elif percent and 1 <= int(percent[1]) <= 100:
        return draft | {"mode": "at_least", "percent": int(percent[1])}
    elif isinstance(least, int) and not isinstance(least, bool) and 1 <= least <= MAX_ITEMS:
        if items and least > items:
            inner.bad("at_least", f"asks for {least:,} of {items:,} items, which can never be")
        return draft | {"mode": "at_least", "count": least}
    elif least is not None:
        inner.bad("at_least", f"must be a whole number from 1, or 1% to 100%, not {show(least)}")
    return draft


def topic(fields: Fields) -> Draft | None:
    """A name or ``{name, limit}``."""
    if isinstance(fields.data.get("topic"), Map):
        inner = fields.inner("topic", fields.raw("topic"), "")
        assert inner is not None
        if not inner.has("name"):
            inner.bad(None, "has no `name`")
        draft = {"name": inner.name("name", "", dotted=True), "limit": inner.integer("limit", None, low=0, high=10**6)}
        inner.finish()
        return draft
    name = fields.name("topic", dotted=True)
    return None if name is None else {"name": name, "limit": None}


def approval(fields: Fields) -> Draft | None:
    """``{group, timeout, on_timeout}``."""
    value = fields.raw("approval")
    inner = None if value is None else fields.inner("approval", value, "{group: …}, the people who may decide")
    if inner is None:
        return None
    if not inner.has("group"):
        inner.bad(None, "has no `group`, the people who may decide")
    draft = {
        "group": inner.text("group", "", limit=150),
        "timeout": inner.duration("timeout", None),
        "on_timeout": inner.choice("on_timeout", "fail", "fail", "approve", "skip"),
    }
    if inner.has("on_timeout") and not inner.has("timeout"):
        inner.bad("on_timeout", "needs a `timeout`")
    inner.finish()
    return draft
