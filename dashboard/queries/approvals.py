"""Approvals that runs wait for: who may answer, since and until when, and what helps to decide."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import Case, F, JSONField, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Length

from dashboard.nav import BOUND
from dashboard.queries.paging import small_int
from orchestrator.core.actor import Actor
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask
from orchestrator.core.states import Kind, StepState, WaitingFor
from orchestrator.engine.explain_waits import unanswered
from orchestrator.engine.operate_steps import may_answer
from orchestrator.engine.reading import plan
from orchestrator.models import Run, Step

PAGE = 12
#: Values of one input or output that are shown at a glance, and characters of each.
VALUES, LENGTH = 8, 80
#: Characters of JSON up to which a value is read for that.
SMALL = 4_000
#: Shards of a fan-out before the step whose outputs are shown.
SHARDS = 2


@dataclass
class Waiting:
    """One approval. ``until``: the end of the time for it, None without; ``then``: what happens at that moment.

    ``glances``: (title, [(key, text)]) of the input and of the outputs before it.
    """

    row: Step
    may: bool
    until: datetime | None
    then: str
    glances: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)

    @property
    def since(self) -> datetime:
        """When it was asked."""
        return self.row.first_started_at or self.row.created_at


@dataclass(frozen=True)
class Approvals:
    """A page, the one that runs out first at the top. ``problem`` says what to fix in the address."""

    items: list[Waiting]
    total: int
    mine: int
    next: str = ""
    problem: str = ""

    @property
    def first(self) -> Waiting:
        """Of those here the one that runs out first."""
        return min(self.items, key=lambda item: (item.until is None, item.until or item.since))


def approvals(actor: Actor, run: str = "", cursor: str = "") -> Approvals:
    """Open approvals, of one run where ``run`` names it. Four queries, whatever the number."""
    try:
        rows = _waiting(run)
        shown = rows.filter(_after(cursor)) if cursor else rows
    except Invalid as error:
        return Approvals([], 0, 0, problem=error.message)
    found = list(shown.select_related("run").defer(*_HEAVY)[: PAGE + 1])  # index: workflow_steps_waiting
    page = found[:PAGE]
    glances = _glances(page)
    items = [Waiting(row, may_answer(actor, row.waiting_name), *_end(row), glances[row.pk]) for row in page]
    alone = not cursor and len(found) <= PAGE
    return Approvals(
        items,
        len(page) if alone else rows.order_by()[: BOUND + 1].count(),
        sum(item.may for item in items),
        _cursor(page[-1]) if len(found) > PAGE else "",
    )


_HEAVY = ("output", "item", "log", "error", "run__input", "run__output", "run__error")


def _waiting(run: str) -> QuerySet[Step]:
    rows = Step.objects.filter(state=StepState.WAITING, waiting_for=WaitingFor.APPROVAL)
    if run:
        try:
            rows = rows.filter(run=uuid.UUID(run))
        except ValueError:
            raise Invalid(f"{run[:60]!r} is not the id of a run", field="run") from None
    return rows.order_by("ready_at", "id")


def _cursor(row: Step) -> str:
    return f"{row.ready_at.astimezone(UTC).isoformat() if row.ready_at else ''}~{row.pk}"


def _after(cursor: str) -> Q:
    """Rows behind the one of the cursor; those without an end come last."""
    moment, _, key = cursor.partition("~")
    try:
        pk = small_int(key)
        at = datetime.fromisoformat(moment) if moment else None
    except ValueError:
        at = pk = None
    if pk is None or (at is not None and at.tzinfo is None):
        raise Invalid("the address names a page that does not exist; start again from the first", field="cursor")
    if at is None:
        return Q(ready_at__isnull=True, pk__gt=pk)
    return Q(ready_at__gt=at) | Q(ready_at=at, pk__gt=pk) | Q(ready_at__isnull=True)


def _end(row: Step) -> tuple[datetime | None, str]:
    return unanswered(row.run, plan(row.run.definition_id), row) or (None, "")


def _glances(page: list[Step]) -> dict[int, list[tuple[str, list[tuple[str, str]]]]]:
    """What to decide on, by row: the run's input and the outputs of the steps right before. Two queries."""
    runs = {row.run_id for row in page}
    if not runs:
        return {}
    inputs = dict(_small(Run.objects.filter(pk__in=runs), "input").values_list("pk", "small"))
    before = {row.pk: list(plan(row.run.definition_id).by_id[row.step].spec.after) for row in page}
    made = Step.objects.filter(run__in=runs, kind=Kind.STEP, state=StepState.DONE, ordinal__lt=SHARDS)
    made = made.filter(step__in={step for steps in before.values() for step in steps})
    outputs: dict[tuple[uuid.UUID, str], list[tuple[str, Any]]] = defaultdict(list)
    for run_id, step, shard, value in _small(made, "output").values_list("run_id", "step", "shard", "small")[:500]:
        outputs[run_id, step].append((shard, value))
    found = {}
    for row in page:
        parts = [("Input", glance(inputs.get(row.run_id)))]
        for step in before[row.pk]:
            parts += [(f"{step} {shard}".strip()[:60], glance(value)) for shard, value in outputs[row.run_id, step]]
        found[row.pk] = [(title, values) for title, values in parts if values]
    return found


def _small(rows: QuerySet[Any], column: str) -> QuerySet[Any]:
    """With the value as ``small``, or null where it is too long for a list."""
    size = Length(Cast(column, TextField()))
    fits = When(length__lte=SMALL, then=F(column))
    small = Case(fits, default=Value(None), output_field=JSONField())
    found: QuerySet[Any] = rows.annotate(length=size, small=small).order_by("pk")
    return found


def glance(value: Any) -> list[tuple[str, str]]:
    """The first few values of a JSON object as text, secrets masked; what is nested is only counted."""
    if value is None:
        return []
    value = mask(value)
    pairs = list(value.items()) if isinstance(value, dict) else [("", value)]
    return [(str(key)[:40], _text(one)) for key, one in pairs[:VALUES]]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"{len(value)} field{'' if len(value) == 1 else 's'}"
    if isinstance(value, list):
        if len(value) > 4 or any(isinstance(one, dict | list) for one in value):
            return f"{len(value)} item{'' if len(value) == 1 else 's'}"
        return ", ".join(map(_text, value))[:LENGTH]
    text = {None: "none", True: "yes", False: "no"}.get(value) if value is None or isinstance(value, bool) else None
    text = text or str(value)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
