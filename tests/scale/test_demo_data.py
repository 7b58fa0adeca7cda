"""The made-up shop: all that the doctor looks at agrees, every kind of run is there, and nobody's runs are mixed in."""

from __future__ import annotations

import json
from collections import Counter
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.core.states import Cause, RunState, WaitingFor
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor import Scope, examine
from orchestrator.models import Attempt, AuditRecord, DeadLetter, FanOut, Rollup, Run, Schedule, Step
from orchestrator.testing.demo import generate
from tests.harness.factory import make
from tests.harness.invariants import check_invariants

pytestmark = pytest.mark.django_db


def make_up(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("demo_data", "--json", *arguments, stdout=out, stderr=StringIO())
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_it_agrees_with_itself_and_has_everything() -> None:
    made = make_up("--runs", "1000", "--seed", "7")
    found = examine(caller_connection(), Scope.everything())
    assert [f"{b.invariant} {b.id}: {b.detail}" for b in found.broken] == []
    check_invariants(at_rest=False)

    assert made["runs"] == Run.objects.count() >= 1000
    assert made["steps"] == Step.objects.count() >= 5 * 1000
    assert made["dead_letters"] == DeadLetter.objects.count() > 20
    assert set(Run.objects.values_list("state", flat=True)) == set(RunState)
    assert set(WaitingFor) == set(Step.objects.filter(state="waiting").values_list("waiting_for", flat=True).distinct())
    causes = set(Run.objects.exclude(cause=None).values_list("cause", flat=True))
    assert {Cause.ERROR, Cause.CANCELLED} <= causes
    assert len(set(Run.objects.values_list("workflow", "version"))) >= 8
    assert Run.objects.filter(state="running", deadline_missed_at__isnull=False).exists(), "overdue"
    assert Run.objects.filter(started_at=None).exists(), "delayed"
    assert Run.objects.filter(parent_run__isnull=False, state="done").exists()
    assert FanOut.objects.filter(total=5000, open__gt=2000).count() == 1
    assert Attempt.objects.count() > 50
    assert {"state", "cancel", "discard"} <= set(AuditRecord.objects.values_list("action", flat=True))
    assert Rollup.objects.filter(metric="workflow_step_attempts_total", labels__outcome="error").exists()
    assert Schedule.objects.get().next_at is not None


def test_the_same_seed_gives_the_same_shop_and_more_can_be_added() -> None:
    kinds = Counter(Run.objects.values_list("workflow", "state"))
    generate(200, seed=3)
    first = Counter(Run.objects.values_list("workflow", "state"))
    Run.objects.filter(parent_run__isnull=False).delete()
    Run.objects.all().delete()
    generate(200, seed=3)
    assert Counter(Run.objects.values_list("workflow", "state")) == first != kinds
    make_up("--runs", "50", "--append")
    assert Run.objects.count() >= first.total() + 50
    check_invariants(at_rest=False)


def test_it_refuses_a_database_with_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    make("done")
    monkeypatch.setattr("orchestrator.testing.demo.history.is_disposable", lambda _: False)
    with pytest.raises(CommandError, match=r"holds runs.*nothing was touched.*--append"):
        make_up("--runs", "10")
    assert Run.objects.count() == 1
    for bad in ("0", "-1", "99999999999"):
        with pytest.raises(CommandError, match="whole number from 1"):
            make_up("--runs", bad)
