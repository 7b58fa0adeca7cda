"""Published definitions as the engine uses them: steps with an index, links both ways, handlers by row name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.retry import backoff_delay
from orchestrator.core.shards import MAX_ITEMS
from orchestrator.core.states import NodeState
from orchestrator.definitions.spec import CompensateSpec, StepSpec, WorkflowSpec
from orchestrator.engine.db import Connection, rows
from orchestrator.models import Definition


@dataclass(frozen=True, slots=True)
class Node:
    """A step of a definition with its place in the graph."""

    index: int
    spec: StepSpec
    after: tuple[int, ...]
    successors: tuple[int, ...]

    @property
    def id(self) -> str:
        """The step's id."""
        return self.spec.id

    @property
    def is_fan_out(self) -> bool:
        """Whether the step runs once for each item of a list."""
        return self.spec.fan_out is not None


class Plan:
    """One definition version, compiled. Immutable; shared by everything in the process."""

    def __init__(self, definition_id: int, spec: WorkflowSpec) -> None:
        self.definition_id = definition_id
        self.spec = spec
        self.workflow = spec.workflow
        self.version = spec.version
        index = {step.id: i for i, step in enumerate(spec.steps)}
        after = [tuple(index[name] for name in step.after) for step in spec.steps]
        successors: list[list[int]] = [[] for _ in spec.steps]
        for i, parents in enumerate(after):
            for parent in parents:
                successors[parent].append(i)
        self.nodes = tuple(Node(i, step, after[i], tuple(successors[i])) for i, step in enumerate(spec.steps))
        self.by_id = {node.id: node for node in self.nodes}
        self.roots = tuple(node for node in self.nodes if not node.after)
        self.last = tuple(node for node in self.nodes if not node.successors)
        own = [step.compensate for step in spec.steps if step.compensate]
        self.compensations: dict[str, CompensateSpec] = {c.name: c for c in [*own, *spec.on_failure.compensate]}
        self._ancestors: dict[int, frozenset[int]] = {}
        self.fresh_states = str(NodeState.PENDING) * len(self.nodes)

    def work_spec(self, kind: str, step: str) -> StepSpec | CompensateSpec:
        """The definition of a row: by step id, or by compensation name."""
        return self.by_id[step].spec if kind == "step" else self.compensations[step]

    def rows_of(self, step: str) -> int:
        """How many rows a step or compensation of one run can have: 1, or many where there is a fan-out."""
        node = self.by_id.get(step)
        if node is None:
            undoes = [self.by_id[name] for name in self.compensations[step].undoes]
            own = len(undoes) == 1 and undoes[0].spec.compensate is self.compensations[step]
            node = undoes[0] if own else None
        if node is None or node.spec.fan_out is None:
            return 1
        return len(node.spec.fan_out.items) if node.spec.fan_out.items is not None else MAX_ITEMS

    def ancestors(self, index: int) -> frozenset[int]:
        """Indexes of everything that a step comes after, however far."""
        known = self._ancestors.get(index)
        if known is None:
            seen: set[int] = set()
            stack = list(self.nodes[index].after)
            while stack:
                i = stack.pop()
                if i not in seen:
                    seen.add(i)
                    stack.extend(self.nodes[i].after)
            known = self._ancestors[index] = frozenset(seen)
        return known

    def descendants(self, step: str) -> set[int]:
        """Indexes of the step and of everything behind it."""
        seen: set[int] = set()
        stack = [self.by_id[step].index]
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                stack.extend(self.nodes[i].successors)
        return seen


def retry_delay(spec: StepSpec | CompensateSpec, attempt: int, max_attempts: int) -> float:
    """Seconds to wait after an attempt that failed. A retry by a person gave a fresh budget: backoff begins anew."""
    spent_before = max_attempts - (spec.retries + 1)
    b = spec.backoff
    return backoff_delay(max(1, attempt - spent_before), first=b.first, factor=b.factor, maximum=b.max, jitter=b.jitter)


_plans: dict[int, Plan] = {}


def load_plan(conn: Connection, definition_id: int) -> Plan:
    """The compiled definition. Definitions are immutable, so what has been read once never goes stale.

    Raises:
        NotFound: there is no such definition.
    """
    known = _plans.get(definition_id) or load_plans(conn, [definition_id]).get(definition_id)
    if known is None:
        raise NotFound(f"definition {definition_id} is not in the database")
    return known


def load_plans(conn: Connection, definition_ids: Iterable[int]) -> dict[int, Plan]:
    """The compiled definitions by id, those that there are. One query where some were not read before."""
    wanted = set(definition_ids)
    missing = sorted(wanted - _plans.keys())
    if missing:
        for row in rows(conn, "SELECT id, spec FROM workflow_definitions WHERE id = ANY(%s)", [missing]):
            spec = json.loads(row.spec) if isinstance(row.spec, str) else row.spec
            _plans[row.id] = Plan(row.id, WorkflowSpec.model_validate(spec))
    return {key: _plans[key] for key in wanted if key in _plans}


#: What was the latest version when this process asked last. Only for a statement that confirms it.
_latest: dict[str, int] = {}


def remembered_definition(workflow: str) -> int | None:
    """What :func:`latest_definition` answered last; another version may have been published since."""
    return _latest.get(workflow)


def forget() -> None:
    """For tests, which change databases: ids of definitions begin again in each."""
    _plans.clear()
    _latest.clear()


_LATEST = """
SELECT id FROM workflow_definitions
WHERE workflow = %s AND (version = %s OR %s::int IS NULL) AND retired_at IS NULL
ORDER BY version DESC LIMIT 1
"""


def latest_definition(conn: Connection, workflow: str, version: int | None = None) -> int:
    """Id of the version that a new run pins: the one named, else the highest that is not retired.

    Raises:
        NotFound: unknown workflow or version; it says which are known.
        Conflict: the version named is retired.
    """
    found = rows(conn, _LATEST, [workflow, version, version])
    if found:
        definition_id: int = found[0].id
        if version is None:
            _latest[workflow] = definition_id
        return definition_id
    known = Definition.objects.filter(workflow=workflow).order_by("version")
    if version is not None and known.exists():
        if known.filter(version=version).exists():
            raise Conflict(f"version {version} of {workflow} is retired: no new runs start on it", field="version")
        versions = ", ".join(str(v) for v in known.values_list("version", flat=True)[:20])
        raise NotFound(f"workflow {workflow!r} has no version {version}; published are: {versions}", field="version")
    names = ", ".join(Definition.objects.values_list("workflow", flat=True).distinct().order_by("workflow")[:20])
    raise NotFound(
        f"no workflow {workflow!r} is published; " + (f"published are: {names}" if names else "run `publish` first"),
        field="workflow",
    )
