"""`manage.py doctor`: documents, exit codes, and the result that is kept for the pages."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.core.actor import Actor
from orchestrator.core.errors import NotAllowed
from orchestrator.core.ids import new_run_id
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor import Scope
from orchestrator.engine.doctor.keep import keep, repair
from orchestrator.models import AuditRecord, Beat, Run
from tests.harness.factory import make


def doctor(*words: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("doctor", *words, stdout=out, stderr=err)
    except CommandError as refused:
        return refused.returncode, out.getvalue(), str(refused)
    return 0, out.getvalue(), err.getvalue()


def document(*words: str) -> tuple[int, Any]:
    code, out, _ = doctor("--json", *words)
    return code, json.loads(out)


@pytest.fixture
def record(live: Any) -> Any:
    """Committed data: the command has a connection of its own."""
    return live


def spoil(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(pending=9)


def test_well(record):
    make("retrying")
    Beat.objects.create(name="dispatcher")
    assert document() == (0, {"ok": True, "broken": [], "repaired": [], "warnings": [], "unchecked": []})
    code, out, _ = doctor()
    assert code == 0
    assert out.startswith("ok: ")


def test_broken_then_repaired(record):
    run = make("retrying")
    Beat.objects.create(name="dispatcher")
    spoil(run)
    code, found = document()
    assert code == 1
    assert found["ok"] is False
    assert found["broken"] == [
        {"invariant": "pending", "id": str(run.pk), "detail": "pending is 9, open rows are 1"},
    ]
    assert Run.objects.get(pk=run.pk).pending == 9, "without --repair nothing changes"
    code, out, refusal = doctor()
    assert (code, "pending is 9" in out, "doctor --repair" in refusal) == (1, True, True)

    code, found = document("--repair")
    assert (code, found["ok"], found["broken"]) == (0, True, [])
    assert [(r["invariant"], r["id"]) for r in found["repaired"]] == [("pending", str(run.pk))]
    record = AuditRecord.objects.get(action="repair")
    assert record.actor.startswith("shell:")
    assert record.reason == "doctor --repair"
    assert document()[0] == 0


def test_what_cannot_be_mended_stays_broken(record):
    make("done")
    AuditRecord.objects.all().delete()
    code, found = document("--repair")
    assert code == 1
    assert [b["invariant"] for b in found["broken"]] == ["history"]
    assert [r["invariant"] for r in found["repaired"]] == ["counters"]


def test_one_run(record):
    bad, good = make("retrying"), make("retrying")
    spoil(bad)
    assert document("--run", str(good.pk))[0] == 0
    code, found = document("--run", str(bad.pk))
    assert (code, [b["id"] for b in found["broken"]]) == (1, [str(bad.pk)])
    assert not Beat.objects.filter(name="doctor").exists(), "a look at one run says nothing of the system"
    assert doctor("--run", str(new_run_id()))[0] == 1
    assert doctor("--run", "nonsense")[0] == 1
    assert doctor("--run", str(good.pk), "--all")[0] == 2


def test_old_runs_only_with_all(record):
    run = make("done")
    Beat.objects.create(name="dispatcher")
    doctor("--repair")
    Run.objects.filter(pk=run.pk).update(finished_at="2020-01-01T00:00:00Z", exclusive_key="k")
    assert document()[0] == 0
    assert document("--all")[1]["broken"][0]["invariant"] == "ended"


def test_the_last_result_is_kept(record):
    run = make("retrying")
    Beat.objects.create(name="dispatcher")
    spoil(run)
    doctor()
    beat = Beat.objects.get(name="doctor")
    assert (beat.detail["ok"], beat.detail["broken"]) == (False, 1)
    assert beat.detail["items"][0]["invariant"] == "pending"
    assert beat.detail["at"]
    doctor("--repair")
    assert Beat.objects.get(name="doctor").detail["ok"] is True


def test_a_quick_look_does_not_hide_what_it_does_not_look_at(ward):
    ward.admit("done")
    ward.sql("DELETE FROM workflow_rollup_deltas")
    conn = caller_connection()
    keep(conn, ward.examine(), "somebody")
    keep(conn, ward.examine(Scope.quick(), quick=True), "dispatcher")
    detail = Beat.objects.get(name="doctor").detail
    assert (detail["ok"], [i["invariant"] for i in detail["items"]]) == (False, ["counters"])
    ward.repair()
    keep(conn, ward.examine(), "somebody")
    assert Beat.objects.get(name="doctor").detail["ok"] is True


def test_a_repair_that_fails_stops_no_other(ward, monkeypatch):
    """The run of a definition that is gone cannot be mended; the other can."""
    bad, good = ward.admit("retrying"), ward.admit("queued")
    ward.sql("UPDATE workflow_runs SET pending = 5")
    from orchestrator.engine.doctor import mend

    real = mend.load_plan

    def broken_plan(conn: Any, definition_id: int) -> Any:
        if not calls:
            calls.append(1)
            raise RuntimeError("no such plan")
        return real(conn, definition_id)

    calls: list[int] = []
    monkeypatch.setattr(mend, "load_plan", broken_plan)
    found, done = ward.repair()
    assert found.ok, "the second round mends what failed in the first"
    assert {d.broken.id for d in done} == {str(bad.pk), str(good.pk)}


def test_the_dispatcher_looks_by_itself(live):
    from orchestrator.transport.upkeep import Upkeep
    from tests.harness.wait import wait_until

    make("retrying")
    Beat.objects.create(name="dispatcher")
    upkeep = Upkeep("me")
    upkeep.tick(None)  # type: ignore[arg-type]
    assert upkeep._thread is None, "not right after the start"
    upkeep._duties = dict.fromkeys(upkeep._duties, 0.0)
    upkeep.tick(None)  # type: ignore[arg-type]
    beat = wait_until(lambda: Beat.objects.filter(name="doctor").first())
    assert beat.holder == "me"
    assert beat.detail["ok"] is True
    assert beat.detail["checked"]
    wait_until(lambda: not upkeep._thread.is_alive())


def test_only_an_admin_repairs(ward):
    with pytest.raises(NotAllowed):
        repair(caller_connection(), ward.examine, Actor("olga", "operator"))
