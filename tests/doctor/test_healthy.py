"""No false alarms: in any stage of a run, after anything the engine does, and while it does it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict
from orchestrator.core.states import RUN_TERMINAL
from orchestrator.engine.db import connect
from orchestrator.engine.doctor import INVARIANTS, Scope
from orchestrator.engine.operate import cancel_run, retry_run
from orchestrator.engine.submit import submit
from orchestrator.models import Beat, Lease, Run
from orchestrator.transport import doctor
from tests.harness import ledger
from tests.harness.factory import STAGES
from tests.harness.wait import wait_until

OLGA = Actor("olga", "operator")


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"overdue"}))
def test_every_stage_is_healthy(ward, stage):
    ward.admit(stage)
    assert ward.look() == []


def test_all_stages_side_by_side(ward):
    for stage in STAGES.keys() - {"overdue"}:
        ward.admit(stage)
    assert ward.look() == []
    assert ward.look(Scope.quick()) == []
    assert ward.look(Scope.everything()) == []


def test_an_empty_system_needs_no_dispatcher(ward):
    ward.sql("DELETE FROM workflow_beats")
    assert ward.look() == []


def test_a_run_past_its_deadline_that_only_alerts_is_healthy(ward):
    run = ward.admit("overdue", on_deadline="alert")
    assert ward.look() == []
    ward.sql("UPDATE workflow_runs SET deadline_missed_at = NULL WHERE id = %s", run.pk)
    assert ward.look() == [("deadline", str(run.pk))]


def test_every_invariant_is_looked_at(ward):
    found = ward.examine()
    assert set(found.checked) == {i.name for i in INVARIANTS} | {"outbox", "tickets", "redis"}
    quick = ward.examine(Scope.quick(), quick=True)
    assert set(found.checked) - set(quick.checked) == {"counters", "tickets"}


@pytest.mark.slow
def test_healthy_while_workers_work(live, monkeypatch, tmp_path):
    """Hundreds of looks at a busy system: nothing that is merely on its way counts as broken."""
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path))
    live.publish("tests.workflows.kit")
    live.start_dispatcher()
    live.start_worker("default", "left", "right", processes=2)
    wait_until(lambda: Beat.objects.exists() and Lease.objects.count() == 2, 30)
    runs = []
    looks = 0
    with connect("test doctor") as conn:

        def look() -> None:
            nonlocal looks
            found = doctor.examine(conn)
            looks += 1
            assert [b.as_json() for b in found.broken] == []

        for n in range(12):
            runs.append(submit("kit-chain", f"c-{n}", {"do": {"*": "sleep:0.02"}}))
            runs.append(submit("kit-static", f"f-{n}", {"do": {"f/2": "fail:1"}}))
            runs.append(submit("kit-saga", f"s-{n}", {"do": {"d": "always_fail"} if n % 2 else {}}))
            runs.append(submit("kit-window", f"w-{n}", {"n": 40, "do": {"l": "numbers"}}))
            runs.append(submit("kit-saga-tries", f"k-{n}", {"do": {"b": "kill:1" if n % 4 == 0 else "fail:1"}}))
            look()
        for run in runs[::9]:
            with suppress(Conflict):  # it has ended, or is undoing what it did
                cancel_run(run, OLGA, "test")
            look()

        def ended() -> bool:
            look()
            return not Run.objects.exclude(state__in=RUN_TERMINAL).exists()

        wait_until(ended, 60)
        for run in Run.objects.filter(state__in=("failed", "cancelled"))[:6]:
            retry_run(run.pk, OLGA, "test")
            look()
        wait_until(ended, 60)
        assert looks > 30
        assert doctor.examine(conn, Scope.everything()).ok
