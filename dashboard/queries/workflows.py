"""Published workflows for the pages: the catalogue, and one of them with steps and live runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboard.nav import frame
from dashboard.queries.runs import RunRow, rows_of
from orchestrator.core.durations import format_duration
from orchestrator.core.errors import NotFound
from orchestrator.core.states import RUN_LIVE
from orchestrator.engine import catalogue
from orchestrator.engine.explain_words import listed, number
from orchestrator.engine.pauses import Paused
from orchestrator.engine.retire import Drain, drain
from orchestrator.models import Definition, Run

LIVE = 20
_RUNS = Run.objects.filter(state__in=sorted(RUN_LIVE)).defer("input", "output")


@dataclass(frozen=True)
class StepLine:
    """A step of a definition in words."""

    id: str
    say: str
    kind: str
    after: str
    queue: str
    limits: str
    undo: str


@dataclass(frozen=True)
class WorkflowPage:
    """One workflow. ``shown`` is the version whose steps are listed, ``drain`` what holds it.

    ``live`` are runs of that version where one was asked for, else of all.
    """

    name: str
    versions: list[dict[str, Any]]
    shown: dict[str, Any]
    steps: list[StepLine]
    on_failure: str
    live: list[RunRow]
    live_count: int
    pause: Paused | None
    schedule: dict[str, Any] | None
    drain: Drain


def all_workflows() -> list[dict[str, Any]]:
    """The catalogue, by name."""
    return catalogue.workflows()


def one_workflow(name: str, version: str) -> WorkflowPage | None:
    """The page of a workflow; nothing when it is not published, or not under that version."""
    if "\x00" in name:
        return None
    try:
        versions = catalogue.versions(name)
    except NotFound:
        return None
    wanted = next((v for v in versions if str(v["version"]) == version), None) if version else _current(versions)
    if wanted is None:
        return None
    spec = Definition.objects.values_list("spec", flat=True).get(workflow=name, version=wanted["version"])
    on_page = {"workflow": name, **({"version": wanted["version"]} if version else {})}
    live = rows_of(list(_RUNS.filter(**on_page).order_by("-id")[:LIVE]))
    return WorkflowPage(
        name,
        versions,
        wanted,
        [_line(step) for step in spec.get("steps", [])],
        _on_failure(spec.get("on_failure") or {}),
        live,
        sum(v["live_runs"] for v in versions),
        next((p for p in frame().pauses if (p.kind, p.name) == ("workflow", name)), None),
        spec.get("schedule"),
        drain(name, wanted["version"]),
    )


def _current(versions: list[dict[str, Any]]) -> dict[str, Any]:
    return next((v for v in versions if not v["retired_at"]), versions[0])


def _line(step: dict[str, Any]) -> StepLine:
    undo = step.get("compensate")
    return StepLine(
        step["id"],
        step.get("say") or "",
        _kind(step),
        listed(list(step.get("after") or []), 4) or "the start",
        "" if step.get("approval") or step.get("wait") or step.get("workflow") else step.get("queue", ""),
        _limits(step),
        undo["handler"] if undo else "",
    )


def _kind(step: dict[str, Any]) -> str:
    if approval := step.get("approval"):
        return f"approval by {approval.get('group') or 'an admin'}"
    if step.get("wait"):
        return f"timer, {format_duration(step['wait'])}"
    if child := step.get("workflow"):
        return f"child run of {child}"
    if fan := step.get("fan_out"):
        items = fan.get("items")
        return f"fan-out, {number(len(items), 'shard')}" if items else f"fan-out over {fan.get('source')}"
    return "step"


def _limits(step: dict[str, Any]) -> str:
    told = []
    if step.get("timeout") and not step.get("approval") and not step.get("wait"):
        told.append(format_duration(step["timeout"]))
    if step.get("retries"):
        told.append(number(step["retries"], "retry", "retries"))
    if topic := step.get("topic"):
        told.append(f"topic {topic['name']}")
    if step.get("lock"):
        told.append(f"lock {step['lock']}")
    if step.get("when"):
        told.append(f"when {step['when']}")
    if step.get("on_error") == "continue":
        told.append("goes on after an error")
    return ", ".join(told)


def _on_failure(failure: dict[str, Any]) -> str:
    undo = [entry["handler"] for entry in failure.get("compensate") or []]
    hold = f"waits {format_duration(failure['hold'])} for an operator, then " if failure.get("hold") else ""
    also = f", then runs {listed(undo, 6)}" if undo else ""
    return (
        f"{hold}undoes the steps that started, latest first{also}, and ends {failure.get('terminal_state', 'failed')}"
    )
