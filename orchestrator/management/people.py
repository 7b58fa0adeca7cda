"""Who runs a command, and the words and tables that commands print."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.actor import Actor
from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.core.errors import Invalid
from orchestrator.core.text import clean
from orchestrator.management.base import UsageError

#: Control characters, which a terminal would obey.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def operator() -> Actor:
    """Whoever has a shell here may do everything; the audit record says which account it was."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = f"uid {os.getuid()}"
    return Actor(f"shell:{name}", "admin")


def reason_argument(parser: CommandParser) -> None:
    """``--reason``, without which nothing is changed."""
    parser.add_argument("--reason", required=True, help="why; kept in the audit trail")


def json_object(text: str, option: str) -> dict[str, Any]:
    """The object that an option holds as JSON.

    Raises:
        UsageError: not JSON.
        Invalid: not an object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{option} is not JSON{place}") from None
    if not isinstance(value, dict):
        raise Invalid(f'{option} must be a JSON object, such as {{"key": "value"}}', field=option)
    return value


def seconds(text: str, option: str) -> float:
    """The duration that an option holds, such as ``15m``, in seconds.

    Raises:
        UsageError: not a duration.
    """
    try:
        return parse_duration(text)
    except BadDuration as problem:
        raise UsageError(f"{option}: {problem}") from None


def plain(value: Any) -> str:
    """Text for one line of a terminal; ``-`` for nothing."""
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    text = _CONTROL.sub("\ufffd", clean(str(value), 500).replace("\n", " ").replace("\t", " "))
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z$", r"\1 \2", text)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns in line, two spaces between them; the head alone is not printed."""
    if not rows:
        return "none"
    lines = [[name.upper() for name in head], *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def facts(pairs: Sequence[tuple[str, Any]]) -> str:
    """Names and values in two columns, those without a value left out."""
    known = [(name, plain(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in known)


def run_text(run: dict[str, Any]) -> str:
    """A run of the API for people: what, where, and its steps."""
    progress = f"{run['progress']:.0%}"
    head = facts(
        [
            ("run", run["id"]),
            ("workflow", f"{run['workflow']} v{run['version']}"),
            ("subject", run["subject_id"]),
            ("state", " ".join(filter(None, [run["state"], run["cause"] and f"({run['cause']})"]))),
            ("undo", run["compensation"]),
            ("progress", progress),
            ("submitted", run["submitted_at"]),
            ("started", run["started_at"]),
            ("finished", run["finished_at"]),
            ("deadline", run["deadline_at"]),
            ("labels", ", ".join(f"{key}={value}" for key, value in run["labels"].items())),
        ]
    )
    rows = [_step_row(step) for step in [*run["steps"], *run["compensations"]]]
    steps = table(("step", "shard", "kind", "state", "cause", "attempt", "queue", "started", "finished"), rows)
    return f"{head}\n\n{_CONTROL.sub(' ', run['where'])}\n\n{steps}"


def _step_row(step: dict[str, Any]) -> list[Any]:
    waiting = step["waiting_for"]
    state = f"waiting for {waiting['kind']}" if waiting else step["state"]
    attempt = f"{step['attempt']}/{step['max_attempts']}"
    return [step["step"], step["shard"], step["kind"], state, step["cause"], attempt, step["queue"],
            step["started_at"], step["finished_at"]]  # fmt: skip
