"""The fault matrix on workflows that are right, and on some that are each wrong in one way."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import pytest

from orchestrator.core.errors import Conflict, Invalid
from orchestrator.engine.db import caller_connection
from orchestrator.engine.plans import latest_definition, load_plan
from orchestrator.models import Beat, Run, Step
from orchestrator.testing import fault_matrix
from orchestrator.testing.checks import problems_of
from orchestrator.testing.disposable import Refused, is_disposable
from orchestrator.testing.faults import VARIABLE
from orchestrator.testing.matrix import run_matrix
from tests.harness.live import Live
from tests.harness.wait import wait_until
from tests.testing.conftest import PACKAGE, World

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


def test_every_fault_at_every_boundary(live: Live, world: World) -> None:
    matrix = fault_matrix("faulty-small", world.input, world.check, packages=[PACKAGE])
    cases = Counter((c["kind"], c["step"], c["case"]) for c in matrix.as_json()["cases"])
    of_a_shard = {"fail", "fail once", "kill before", "kill after book", "kill at the end", "completed again"}
    assert {case for kind, step, case in cases if step == "rooms"} == of_a_shard | {"completed twice", "cancel"}
    assert set(cases.values()) == {1, 2} and cases["step", "rooms", "fail"] == 2, "first and last shard of two"
    undo = {case for kind, step, case in cases if kind == "compensation" and step == "faulty.cancel_booking:rooms"}
    assert {"fail", "kill after cancel", "completed twice", "cancel"} <= undo
    assert ("compensation", "faulty.note", "kill before") in cases
    assert ("step", "pay", "fail once") not in cases, "it has no retries"
    assert ("compensation", "faulty.cancel_booking:pay", "kill at the end") in cases
    by_case = {(c["step"], c["case"]): c["state"] for c in matrix.as_json()["cases"]}
    assert by_case["rooms", "kill after book"] == "done" and by_case["pay", "kill after book"] == "failed"
    assert by_case["pay", "cancel"] == "cancelled"
    assert not Run.objects.exclude(state__in=["done", "failed", "cancelled"]).exists()
    _tampered_records_are_seen(matrix.outcomes)


def _tampered_records_are_seen(outcomes) -> None:
    """What is checked can fail: each lie about a good run is found out."""
    conn = caller_connection()
    plan = load_plan(conn, latest_definition(conn, "faulty-small"))
    by_case = {(o.title, o.case.target.step if o.case.target else ""): o for o in outcomes}
    baseline, failed = by_case["baseline", ""], by_case["fail", "pay"]

    def said(outcome, entries=None, rows=None) -> str:
        twin = dataclasses.replace(outcome, entries=outcome.entries if entries is None else entries)
        if rows is not None:
            twin.rows = rows
        return "; ".join(problems_of(twin, baseline, plan))

    assert said(failed) == ""
    start = next(e for e in failed.entries if e.event == "start" and e.shard == "a")
    assert "attempt 1 of rooms[a] was run 2 times" in said(failed, [*failed.entries, start])
    assert "its handler was called for []" in said(failed, [e for e in failed.entries if e.step != "rooms"])
    assert "called 'book' 2 times in 1 attempts" in said(
        failed, [*failed.entries, next(e for e in failed.entries if e.note == "book")]
    )
    assert "nothing was injected into pay" in said(failed, [e for e in failed.entries if e.event != "fault"])
    assert "pay was called before rooms had ended" in said(failed, failed.entries[::-1])
    undo = [e for e in failed.entries if e.kind == "compensation"]
    assert "faulty.note was undone before" in said(failed, [e for e in failed.entries if e not in undo] + undo[::-1])
    without = [r for r in failed.rows if r.step != "faulty.cancel_booking:rooms" or r.shard != "a"]
    assert "its compensation was made 0 times" in said(failed, rows=without)
    assert "on_failure asks for" in said(failed, rows=[r for r in failed.rows if r.step != "faulty.note"])

    Step.objects.filter(run=baseline.run_id, shard="a").update(attempt=2)
    del baseline.__dict__["rows"]
    assert "its record holds the ends of []" in said(dataclasses.replace(baseline))
    Step.objects.filter(run=baseline.run_id, shard="a").update(attempt=1)
    Run.objects.filter(pk=baseline.run_id).update(pending=0, node_states="dp")
    assert "doctor, node_states" in said(dataclasses.replace(baseline))


@pytest.mark.long
def test_a_diamond_with_a_dynamic_fan_out_a_timer_and_an_undo(live: Live, world: World) -> None:
    matrix = fault_matrix("faulty", world.input, world.check, packages=[PACKAGE])
    assert {(c["step"], c["shard"]) for c in matrix.as_json()["cases"] if c["step"] == "rooms"} == {
        ("rooms", "a"), ("rooms", "c"), ("rooms", "d"),
    }  # fmt: skip
    assert len(matrix.outcomes) == 95


def test_a_handler_that_charges_twice_is_reported(live: Live, world: World) -> None:
    matrix = run_matrix("faulty-blind", world.input, world.check, packages=[PACKAGE], only=["kill"])
    bad = {c["case"]: c["detail"] for c in matrix.as_json()["cases"] if not c["ok"]}
    assert set(bad) == {"kill after charge", "kill at the end"}
    assert all("more than once" in detail for detail in bad.values())
    assert not matrix.ok


def test_an_undo_that_was_forgotten_is_reported(live: Live, world: World) -> None:
    with pytest.raises(AssertionError, match=r"effects are left: \['car._'\]") as failed:
        fault_matrix("faulty-forgotten", world.input, world.check, packages=[PACKAGE], only=["fail"])
    assert "FAILED" in str(failed.value) and "the fault matrix of faulty-forgotten has failures" in str(failed.value)


def test_a_workflow_that_fails_by_itself_gets_no_faults(live: Live, world: World) -> None:
    [case] = run_matrix("faulty-forgotten", {"world": "/nowhere"}, packages=[PACKAGE]).as_json()["cases"]
    assert case["case"] == "baseline" and not case["ok"] and case["state"] == "failed"
    assert "/nowhere" in case["detail"] and "nothing was injected" in case["detail"]


def test_the_command_answers_in_json_and_by_its_exit_code(live: Live, world: World) -> None:
    given = ("fault_matrix", "faulty-forgotten", "--input", json.dumps(world.input), "--only", "fail", "--json")
    done = live.manage(*given, "--check", "tests.testing.hooks:refuse_failed_runs")
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and answer["ok"] is False and "cases of faulty-forgotten failed" in done.stderr
    assert {"case", "step", "shard", "ok", "state", "detail"} <= answer["cases"][0].keys()
    assert {c["ok"] for c in answer["cases"] if c["state"] == "failed"} == {False}
    assert "cases at steps" in done.stderr


def test_a_database_that_is_not_disposable_is_refused_and_not_touched(live: Live, settings, monkeypatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "NAME", "production")
    with pytest.raises(Refused, match="'production' is not marked as disposable; nothing was touched"):
        run_matrix("faulty-small", packages=[PACKAGE])
    monkeypatch.setenv("ORCHESTRATOR_DISPOSABLE", "yes")
    assert is_disposable("production")


def test_the_command_refuses_such_a_database(live: Live, world: World) -> None:
    url = live.database.url.replace(live.database.name, "production")
    done = live.manage("fault_matrix", "faulty-small", DATABASE_URL=url)
    assert done.returncode == 1 and done.stdout == "" and "is not marked as disposable" in done.stderr


def test_a_worker_with_a_fault_plan_refuses_such_a_database(live: Live, world: World, tmp_path) -> None:
    url = live.database.url.replace(live.database.name, "production")
    done = live.manage("worker", "default", DATABASE_URL=url, **{VARIABLE: str(tmp_path / "plan.json")})
    assert done.returncode == 1 and "'production' is not marked as disposable" in done.stderr
    done = live.manage("worker", "default", **{VARIABLE: str(tmp_path / "plan.json")})
    assert done.returncode == 1 and f"environment variable {VARIABLE}" in done.stderr and "no fault plan" in done.stderr


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("shop_test", True), ("test_x", True), ("sy_test_1_ab", True), ("scratch", True), ("Shop-Disposable", True),
        ("latest", False), ("contest", False), ("switchyard", False), ("scratchpad", False), ("", False),
    ],
)  # fmt: skip
def test_disposable_is_a_matter_of_the_name(name: str, may: bool, monkeypatch) -> None:
    monkeypatch.delenv("ORCHESTRATOR_DISPOSABLE", raising=False)
    assert is_disposable(name) is may


def test_workers_of_others_and_open_transactions_and_unknown_kinds_are_refused(live: Live, world: World) -> None:
    with pytest.raises(Invalid, match="explode is no kind of fault; they are fail, retry, kill, duplicate, cancel"):
        run_matrix("faulty-small", packages=[PACKAGE], only=["explode"])
    dispatcher = live.start_dispatcher()
    wait_until(Beat.objects.exists, 15, why=dispatcher.log_tail)
    with pytest.raises(Conflict, match="running on this database"):
        run_matrix("faulty-small", packages=[PACKAGE])
