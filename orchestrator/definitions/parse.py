"""A whole definition: from YAML to a validated :class:`WorkflowSpec`, or every mistake with its line.

``load(path)`` is the way in. Nothing here knows Django or the database; what the settings decide comes as `Defaults`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.core.cron import cron_problem, zone_problem
from orchestrator.definitions.checks import check_schedule_subject, check_steps, name_compensations
from orchestrator.definitions.errors import Problems
from orchestrator.definitions.fields import Fields, show
from orchestrator.definitions.load import MAX_STEPS, Map, Seq, load_yaml, read_bytes
from orchestrator.definitions.not_built import NOT_BUILT
from orchestrator.definitions.parse_parts import Context, Defaults, Draft, HandlerUse, compensation
from orchestrator.definitions.parse_steps import parse_step
from orchestrator.definitions.spec import WorkflowSpec
from orchestrator.definitions.templates import BadTemplate, placeholders

_WORKFLOW = re.compile(r"[a-z0-9-]{1,100}")
MAX_VERSION = 2_147_483_647
MAX_LABELS = 50


@dataclass(frozen=True)
class Loaded:
    """A definition that can be published, with what is needed to say where something else about it is wrong."""

    spec: WorkflowSpec
    content_hash: str
    source: str
    file: str
    handlers: tuple[HandlerUse, ...]
    line: int


def load(
    path: Path, defaults: Defaults | None = None, *, file: str | None = None, not_built: frozenset[str] = NOT_BUILT
) -> Loaded:
    """The definition in a YAML file; ``file`` is its name in messages.

    Raises:
        DefinitionError: with every mistake found, each with file, line and reason.
    """
    name = file or str(path)
    return loads(read_bytes(path, name), name, defaults, not_built=not_built)


def loads(
    raw: bytes | str,
    file: str = "definition.yaml",
    defaults: Defaults | None = None,
    *,
    not_built: frozenset[str] = NOT_BUILT,
) -> Loaded:
    """The same from the text itself.

    Raises:
        DefinitionError: as :func:`load`.
    """
    data = load_yaml(raw, file)
    context = Context(Problems(file), defaults or Defaults())
    draft = _workflow(context, data, not_built)
    context.problems.raise_if_any()
    # Hashed with nothing in place of the defaults, so that another default in the settings is not another content.
    neutral = Context(Problems(file), Defaults(deadline=0.0, timeout=0.0))
    content = _workflow(neutral, data, not_built)
    try:
        spec = WorkflowSpec.model_validate(draft)
    except ValidationError as error:  # the parser let something through: say it rather than fall over
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise context.problems.stop(data.line, f"`{where}` cannot be accepted: {first['msg']}") from None
    source = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
    return Loaded(spec, content_hash(content), source, file, tuple(context.handlers), data.lines["version"])


def content_hash(draft: Draft) -> str:
    """SHA-256 of a normalised definition. Keys that are not set do not count, so that the grammar can grow."""
    text = json.dumps(_set_only(draft), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _set_only(value: Any) -> Any:
    """Without keys that are None; items and inputs are an author's own data and stay as they are."""
    if isinstance(value, dict):
        return {k: v if k in ("items", "input") else _set_only(v) for k, v in value.items() if v is not None}
    return [_set_only(item) for item in value] if isinstance(value, list) else value


def _workflow(context: Context, data: Map, not_built: frozenset[str]) -> Draft:
    fields = Fields(context.problems, data)
    for key in ("workflow", "version", "steps"):
        if not fields.has(key):
            fields.bad(None, f"has no `{key}`")
    steps, sources = _steps(context, fields, not_built)
    on_failure = _on_failure(context, fields, [step["id"] for step in steps if step["id"]], not_built)
    draft: Draft = {
        "workflow": _name(fields),
        "version": fields.integer("version", 1, low=1, high=MAX_VERSION),
        "description": fields.text("description", "", limit=10_000),
        "owner": fields.text("owner", ""),
        "runbook": _runbook(fields),
        "labels": _labels(fields),
        "deadline": fields.duration("deadline", context.defaults.deadline),
        "on_deadline": fields.choice("on_deadline", "fail", "fail", "alert"),
        "schedule": _schedule(fields),
        "exclusive": _exclusive(fields),
        "steps": steps,
        "on_failure": on_failure,
    }
    fields.finish()
    _refuse_not_built(fields, "", not_built)
    check_steps(context, steps, sources)
    name_compensations(steps, on_failure["compensate"])
    return draft


def _refuse_not_built(fields: Fields, prefix: str, not_built: frozenset[str]) -> None:
    for key in fields.data:
        if prefix + key in not_built:
            fields.bad(key, "is not built yet in this version")


def _name(fields: Fields) -> str:
    value = fields.raw("workflow")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and _WORKFLOW.fullmatch(value):
        return value
    if value is not None:
        fields.bad("workflow", f"must be a name of small letters, digits and -, not {show(value)}")
    return ""


def _steps(context: Context, fields: Fields, not_built: frozenset[str]) -> tuple[list[Draft], list[Map]]:
    value = fields.raw("steps")
    drafts: list[Draft] = []
    sources: list[Map] = []
    if value is None:
        return drafts, sources
    if not isinstance(value, Seq) or not value:
        fields.bad("steps", f"must be a list with at least one step, not {'empty' if value == [] else show(value)}")
        return drafts, sources
    if len(value) > MAX_STEPS:
        raise context.problems.stop(fields.line("steps"), f"has more than {MAX_STEPS:,} steps")
    previous: str | None = None
    for number, (item, line) in enumerate(zip(value, value.lines, strict=True), 1):
        if not isinstance(item, Map):
            context.problems.add(line, f"step {number}: must be a mapping with an `id`, not {show(item)}")
            continue
        draft = parse_step(context, item, number, previous)
        _refuse_not_built(Fields(context.problems, item, f"step '{draft['id']}': "), "step.", not_built)
        previous = draft["id"] or previous
        drafts.append(draft)
        sources.append(item)
    return drafts, sources


def _on_failure(context: Context, fields: Fields, steps: list[str], not_built: frozenset[str]) -> Draft:
    draft: Draft = {"compensate": [], "terminal_state": "failed", "hold": None}
    value = fields.raw("on_failure")
    inner = None if value is None else fields.inner("on_failure", value, "a mapping")
    if inner is None:
        return draft
    undo = inner.raw("compensate")
    if undo is not None:
        entries = inner.each(
            "compensate",
            undo,
            lambda item, line: compensation(context, inner, "compensate", item, line, "default", None),
        )
        draft["compensate"] = [entry for entry in entries if entry is not None]
    for entry in draft["compensate"]:
        for name in entry["undoes"] or []:
            if name not in steps:
                inner.bad("compensate", f"'{entry['handler']}' undoes {show(name)}, which is no step here")
        if entry["undoes"] is None:
            entry["undoes"] = list(steps)
    draft["terminal_state"] = inner.choice("terminal_state", "failed", "failed", "cancelled")
    draft["hold"] = inner.duration("hold", None)
    inner.finish()
    _refuse_not_built(inner, "on_failure.", not_built)
    return draft


def _runbook(fields: Fields) -> str:
    url = fields.text("runbook", "") or ""
    if url and not re.fullmatch(r"https?://[^\s/]\S*", url):
        fields.bad("runbook", f"must be a web address that begins with http:// or https://, not {show(url)}")
    return url


def _labels(fields: Fields) -> dict[str, str]:
    """Labels as text: numbers and true or false as they are written in JSON."""
    value = fields.raw("labels")
    inner = None if value is None else fields.inner("labels", value, "a mapping of names to texts")
    labels: dict[str, str] = {}
    if inner is None:
        return labels
    if len(inner.data) > MAX_LABELS:
        inner.bad(None, f"has more than {MAX_LABELS} labels")
    for key, text in inner.data.items():
        if isinstance(text, (Map, Seq)) or text is None:
            inner.bad(key, f"must be text, not {show(text)}")
        else:
            labels[key] = text if isinstance(text, str) else json.dumps(text)
    return labels


def _exclusive(fields: Fields) -> Draft | None:
    value = fields.raw("exclusive")
    if isinstance(value, Map):
        inner = fields.inner("exclusive", value, "")
        assert inner is not None
        if not inner.has("by"):
            inner.bad(None, "has no `by`; write subject or workflow")
        draft = {
            "by": inner.choice("by", "subject", "subject", "workflow"),
            "then": inner.choice("then", "reject", "reject", "wait"),
        }
        inner.finish()
        return draft
    by = fields.choice("exclusive", None, "subject", "workflow")
    return None if by is None else {"by": by, "then": "reject"}


def _schedule(fields: Fields) -> Draft | None:
    value = fields.raw("schedule")
    inner = None if value is None else fields.inner("schedule", value, "a mapping with `cron` and `subject`")
    if inner is None:
        return None
    for key in ("cron", "subject"):
        if not inner.has(key):
            inner.bad(None, f"has no `{key}`")
    draft: Draft = {
        "cron": inner.text("cron", ""),
        "timezone": inner.text("timezone", "UTC"),
        "subject": inner.text("subject", ""),
        "overlap": inner.choice("overlap", "skip", "skip", "allow"),
    }
    inner.finish()
    _check_schedule(inner, draft)
    return draft


def _check_schedule(inner: Fields, draft: Draft) -> None:
    if draft["cron"] and (reason := cron_problem(draft["cron"])):
        inner.bad("cron", f"{show(draft['cron'])} {reason}")
    if reason := zone_problem(draft["timezone"]):
        inner.bad("timezone", f"{show(draft['timezone'])} {reason}")
    try:
        reason = check_schedule_subject(draft["subject"], list(placeholders(draft["subject"])))
    except BadTemplate as error:
        reason = str(error)
    if reason:
        inner.bad("subject", reason)
