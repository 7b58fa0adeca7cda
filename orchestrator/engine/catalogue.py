"""Published workflows and their versions, with how many runs are live on each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db.models import Count

from orchestrator.core.errors import NotFound
from orchestrator.core.states import RUN_LIVE
from orchestrator.models import Definition, Run


def workflows() -> list[dict[str, Any]]:
    """Every workflow by name, described by its newest version that is not retired (or its newest at all)."""
    live: Counter[str] = Counter()
    for (name, _), count in live_runs().items():
        live[name] += count
    found: dict[str, dict[str, Any]] = {}
    for row in Definition.objects.defer("source").order_by("workflow", "-version"):
        entry = found.setdefault(row.workflow, {"row": row, "versions": []})
        entry["versions"].append(row.version)
        if entry["row"].retired_at and not row.retired_at:
            entry["row"] = row
    return [
        {
            "workflow": name,
            **_about(entry["row"]),
            "versions": entry["versions"],
            "live_runs": live[name],
        }
        for name, entry in found.items()
    ]


def versions(workflow: str) -> list[dict[str, Any]]:
    """The versions of a workflow, newest first.

    Raises:
        NotFound: nothing is published under that name.
    """
    rows = Definition.objects.filter(workflow=workflow).order_by("-version")
    live = live_runs(workflow)
    found = [
        {
            "workflow": row.workflow,
            **_about(row),
            "content_hash": row.content_hash,
            "origin": row.origin,
            "package": row.package,
            "steps": [step["id"] for step in row.spec.get("steps", [])],
            "source": row.source,
            "live_runs": live[workflow, row.version],
        }
        for row in rows
    ]
    if not found:
        raise NotFound(f"no workflow {workflow!r} is published", field="workflow")
    return found


def _about(row: Definition) -> dict[str, Any]:
    spec = row.spec
    return {
        "version": row.version,
        "description": spec.get("description") or "",
        "owner": spec.get("owner") or "",
        "runbook": spec.get("runbook") or "",
        "labels": spec.get("labels") or {},
        "deadline_seconds": spec.get("deadline"),
        "published_at": row.published_at,
        "retired_at": row.retired_at,
    }


def live_runs(workflow: str | None = None) -> Counter[tuple[str, int]]:
    """How many runs are live on each (workflow, version), of all workflows or of one. One query."""
    runs = Run.objects.filter(state__in=sorted(RUN_LIVE)).order_by()
    if workflow is not None:
        runs = runs.filter(workflow=workflow)
    counts = runs.values("workflow", "version").annotate(runs=Count("pk"))
    return Counter({(row["workflow"], row["version"]): row["runs"] for row in counts})
