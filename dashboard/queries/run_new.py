"""What the form that starts a run is filled with, and what it sends, read into the engine's arguments."""

from __future__ import annotations

import json
import re
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max

from dashboard.api.body import parse
from dashboard.api.errors import ApiError
from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import MASK, is_secret_key, mask, mask_text
from orchestrator.models import Definition, Run

TEXTS = ("workflow", "version", "subject_id", "input", "labels", "deadline", "delay", "idempotency_key", "reason")
#: Versions named beside the field.
VERSIONS = 6


@dataclass
class RunForm:
    """The fields as text. ``once`` makes a form start one run at most; ``old`` is the run that it is filled from."""

    values: dict[str, str]
    once: str
    old: Run | None = None
    missing: str = ""
    errors: dict[str, str] = field(default_factory=dict)


def blank(params: Mapping[str, str]) -> RunForm:
    """The form to begin with: empty, as the address asks, or filled from an old run with its secrets masked."""
    given = {name: params.get(name, "")[:500] for name in ("workflow", "version", "subject_id")}
    form = RunForm({**dict.fromkeys(TEXTS, ""), "input": "{}", **given}, secrets.token_hex(8))
    wanted = params.get("from", "")
    if wanted:
        form.old = find_old(wanted)
        if form.old is None:
            form.missing = wanted[:60]
        else:
            form.values |= _filled(form.old)
    return form


def find_old(text: str) -> Run | None:
    """The run whose id it is, if there is one."""
    try:
        return Run.objects.filter(pk=uuid.UUID(text)).defer("output", "error").first()
    except ValueError:
        return None


def _filled(old: Run) -> dict[str, str]:
    labels = {k: MASK if is_secret_key(k) else mask_text(str(v)) for k, v in old.labels.items()}
    return {
        "workflow": old.workflow,
        "subject_id": old.subject_id,
        "input": json.dumps(mask(old.input), indent=2, ensure_ascii=False),
        "labels": "\n".join(f"{key}: {value}" for key, value in labels.items()),
    }


def sent(params: Mapping[str, str]) -> RunForm:
    """The form as it came back."""
    once = params.get("once", "")
    if not re.fullmatch(r"[0-9a-f]{16}", once):
        once = secrets.token_hex(8)
    return RunForm({name: params.get(name, "") for name in TEXTS}, once, find_old(params.get("from", "")))


def arguments(form: RunForm) -> dict[str, Any]:
    """What ``operate.start_run`` takes. Fields that cannot be read are told in ``form.errors``."""
    given = form.values
    found: dict[str, Any] = {"workflow": given["workflow"], "subject_id": given["subject_id"].strip()}
    for name, read in (("version", _version), ("input", _input), ("labels", _labels)):
        try:
            found[name] = read(given[name])
        except Invalid as error:
            form.errors[name] = error.message
    for name in ("deadline", "delay"):
        found[name] = given[name].strip() or None
        try:
            parse_duration(found[name] or "0s")
        except BadDuration as problem:
            form.errors[name] = str(problem)
    if not found["workflow"]:
        form.errors["workflow"] = "choose a workflow"
    if not found["subject_id"]:
        form.errors["subject_id"] = "say what the run is about, such as an order or video number"
    found["idempotency_key"] = given["idempotency_key"].strip() or f"page-{form.once}"
    return found


def _version(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text, re.ASCII):
        raise Invalid("a version is a whole number from 1; leave it empty for the newest")
    return int(text)


def _input(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        return parse(text.encode("utf-8", "surrogatepass"))
    except ApiError as problem:
        raise Invalid(problem.message.replace("the body", "the input")) from None


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        key, sign, value = line.partition(":")
        if not sign or not key.strip():
            raise Invalid(f"line {number} is not key: value, such as tier: gold")
        if key.strip() in labels:
            raise Invalid(f"line {number} gives {key.strip()[:60]!r} a second time")
        labels[key.strip()] = value.strip()
    return labels


def workflows() -> list[tuple[str, int]]:
    """(workflow, newest version that takes new runs) of all that can be started."""
    rows = Definition.objects.filter(retired_at=None).order_by("workflow").values_list("workflow")
    return list(rows.annotate(newest=Max("version"))[:500])


def versions(workflow: str) -> list[int]:
    """The latest versions of a workflow, newest first."""
    if not workflow or "\x00" in workflow:
        return []
    rows = Definition.objects.filter(workflow=workflow).order_by("-version")
    return list(rows.values_list("version", flat=True)[:VERSIONS])
