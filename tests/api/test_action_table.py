"""Every action on a run in every stage: accepted where its state allows it, else refused, nothing changed (C84)."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import serializers

from orchestrator.models import AuditRecord, DeadLetter, FanOut, Outbox, Run, Step
from tests.api.conftest import Caller
from tests.harness import factory

STAGES = sorted(set(factory.STAGES) - {"wide"})
ENDED = {"done", "failed", "partial", "cancelled"}
STOPPED = ENDED | {"compensating"}
#: For each action on a run: the stages that take it.
ALLOWED = {
    "cancel": set(STAGES) - STOPPED,
    "retry": ENDED - {"done"},
    "extend": set(STAGES) - STOPPED - {"delayed"},
    "note": set(STAGES),
}
BODIES: dict[str, Any] = {
    "cancel": {"reason": "x"},
    "retry": {"reason": "x"},
    "extend": {"deadline": "48h", "reason": "x"},
    "note": {"note": "x"},
}


def record() -> list[str]:
    """Everything the record holds of runs, to the letter."""
    return [
        serializers.serialize("json", m.objects.order_by("pk"))
        for m in (Run, Step, FanOut, Outbox, AuditRecord, DeadLetter)
    ]


@pytest.mark.parametrize("action", sorted(ALLOWED))
@pytest.mark.parametrize("stage", STAGES)
def test_an_action_on_a_run(api: Caller, stage: str, action: str) -> None:
    run = factory.make(stage)
    before = record()
    status, body = api("POST", f"/runs/{run.pk}/{action}", BODIES[action])
    assert status == (200 if stage in ALLOWED[action] else 409), body
    assert (record() == before) == (status == 409)
    if status == 409:
        assert body["error"]["code"] == "conflict" and body["error"]["message"]


@pytest.mark.parametrize("action", ["approve", "reject", "skip"])
@pytest.mark.parametrize("stage", STAGES)
def test_an_action_on_each_step_of_a_run(api: Caller, stage: str, action: str) -> None:
    run = factory.make(stage)
    for step in list(Step.objects.filter(run=run).order_by("pk")):
        step.refresh_from_db()
        run.refresh_from_db()
        before = record()
        waits = step.waiting_for == "approval"
        open_step = step.kind == "step" and step.state in ("waiting", "queued", "pending")
        can = open_step and run.stop is None and run.state == "running" and (waits or action == "skip")
        status, body = api("POST", f"/steps/{step.pk}/{action}", {"reason": "x"}, role="admin")
        assert status == (200 if can else 409), (step, step.state, body)
        assert (record() == before) == (status == 409)


@pytest.mark.parametrize("action", ["replay", "discard"])
@pytest.mark.parametrize("stage", STAGES)
def test_an_action_on_each_dead_letter_of_a_run(api: Caller, stage: str, action: str) -> None:
    run = factory.make(stage)
    for letter in list(DeadLetter.objects.filter(run=run)):
        run.refresh_from_db()
        letter.refresh_from_db()
        before = record()
        can = letter.state == "open" and (action == "discard" or run.state in ENDED)
        status, body = api("POST", f"/dead-letters/{letter.pk}/{action}", {"reason": "x"})
        assert status == (200 if can else 409), body
        assert (record() == before) == (status == 409)
