"""One step of a definition, from what its author wrote to the normalised form."""

from __future__ import annotations

from typing import Any

from orchestrator.core.shards import MAX_ITEMS
from orchestrator.core.states import Kind
from orchestrator.definitions.fields import MAX_RETRIES, Fields, show
from orchestrator.definitions.load import Map
from orchestrator.definitions.parse_parts import (
    Context,
    Draft,
    HandlerUse,
    approval,
    backoff,
    compensation,
    fan_out,
    join,
    names,
    plain,
    reference,
    templates,
    topic,
)

#: What a step can do; exactly one of them.
KINDS = ("handler", "wait", "approval", "workflow")
_ATTEMPTS = ("queue", "timeout", "retries", "backoff", "topic", "lock", "on_lock_conflict")
_SHARDS = ("fan_out", "window", "join", "join_timeout")
_CHILD = ("subject_id", "input")
#: Keys that mean nothing in a step of that kind.
_NOT_IN = {
    "handler": _CHILD,
    "wait": (*_ATTEMPTS, *_SHARDS, *_CHILD, "compensate"),
    "approval": (*_ATTEMPTS, *_SHARDS, *_CHILD, "compensate"),
    # Its `retries` are taken, as in any step, and none is spent: a child that failed is retried with its parent.
    "workflow": tuple(key for key in _ATTEMPTS if key not in ("retries", "backoff")),
}
_SAYS = {
    "handler": "only a child run (`workflow:`) takes it",
    "wait": "a step that waits runs nothing that could use it",
    "approval": "a step that asks for an approval runs nothing that could use it",
    "workflow": "a child run has its own; set it in the child's definition",
}


def parse_step(context: Context, data: Map, number: int, previous: str | None) -> Draft:
    """The normalised step. ``number`` counts from 1; ``previous`` is the id of the step above, if it has one."""
    fields = Fields(context.problems, data, f"step {number}: ")
    step = fields.name("id")
    if step is None:
        if not fields.has("id"):
            fields.bad(None, "has no `id`")
    else:
        fields.where = f"step '{step}': "
    label = step or ""
    kind = _kind(fields)
    for key in _NOT_IN[kind]:
        if fields.has(key):
            fields.bad(key, f"does not belong here: {_SAYS[kind]}")
            fields.known(key)
    fields = _without(fields, _NOT_IN[kind])
    queue = fields.name("queue", "default", dotted=True)
    fan = fan_out(context, fields, label)
    draft: Draft = {
        "id": label,
        "say": fields.text("say", limit=200),
        "handler": _handler(context, fields, label) if kind == "handler" else "",
        "queue": queue,
        "timeout": fields.duration("timeout", context.defaults.timeout),
        "retries": fields.integer("retries", 0, low=0, high=MAX_RETRIES),
        "backoff": backoff(fields),
        "compensate": _compensate(context, fields, label, queue or "default"),
        "after": _after(fields, previous),
        "fan_out": fan,
        "window": fields.integer("window", None, low=1, high=MAX_ITEMS),
        "join": join(fields, len(fan["items"]) if fan and fan["items"] else None),
        "join_timeout": fields.duration("join_timeout", None),
        "topic": topic(fields),
        "lock": fields.text("lock", limit=500),
        "on_lock_conflict": fields.choice("on_lock_conflict", None, "requeue", "reject", "dead_letter"),
        "approval": approval(fields),
        "wait": _wait(fields),
        "workflow": fields.name("workflow"),
        "subject_id": fields.text("subject_id", limit=500),
        "input": _input(fields),
        "when": fields.text("when"),
        "on_error": fields.choice("on_error", "fail", "fail", "continue"),
    }
    for key in ("window", "join", "join_timeout"):
        if fields.has(key) and not fields.has("fan_out"):
            fields.bad(key, "needs a `fan_out`")
    if draft["when"] is not None:
        reference(context, fields, label, "when", draft["when"], "when")
    for key in ("lock", "subject_id", "input"):
        if draft[key] is not None:
            templates(context, fields, label, key, draft[key])
    fields.finish()
    return draft


def _kind(fields: Fields) -> str:
    given = [kind for kind in KINDS if fields.has(kind)]
    if len(given) > 1:
        fields.bad(given[1], f"and `{given[0]}` exclude each other; make two steps of it")
    return given[0] if given else "handler"


def _without(fields: Fields, keys: tuple[str, ...]) -> Fields:
    """The same readers over a copy without some keys, so that what was refused is not complained of twice."""
    data = Map(fields.data.line)
    data.lines = fields.data.lines
    data.update((key, value) for key, value in fields.data.items() if key not in keys)
    rest = Fields(fields.problems, data, fields.where)
    rest.known("id")
    if len([kind for kind in KINDS if fields.has(kind)]) > 1:
        rest.known("handler")
    return rest


def _handler(context: Context, fields: Fields, step: str) -> str:
    handler = fields.name("handler", step, dotted=True) or ""
    if handler:
        line = fields.line("handler" if fields.has("handler") else "id")
        context.handlers.append(HandlerUse(handler, Kind.STEP, line, fields.where.removesuffix(": ")))
    return handler


def _compensate(context: Context, fields: Fields, step: str, queue: str) -> Draft | None:
    value: Any = fields.raw("compensate")
    if value is None:
        return None
    return compensation(context, fields, "compensate", value, fields.line("compensate"), queue, [step])


def _after(fields: Fields, previous: str | None) -> list[str]:
    given = names(fields, "after")
    if given is None:
        return [] if previous is None else [previous]
    return given


def _wait(fields: Fields) -> float | None:
    # `wait: 0s` is harmless and handy in a test, so zero is let through.
    return fields.duration("wait", None, zero=True)


def _input(fields: Fields) -> Any:
    value = fields.raw("input")
    if value is None or isinstance(value, Map):
        return plain(value)
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        return value
    fields.bad("input", f'must be a mapping or one placeholder such as "{{item}}", not {show(value)}')
    return None
