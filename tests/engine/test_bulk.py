"""Bulk operations: exact sets, a result for each, what is refused."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Invalid, NotAllowed
from orchestrator.engine import bulk, operate
from orchestrator.engine.find import RunFilters
from orchestrator.engine.find_dead_letters import DeadLetterFilters
from orchestrator.models import AuditRecord, BulkOperation, DeadLetter, Run
from tests.engine.bulk_help import SOLO, drive, failed, results
from tests.engine.conftest import OPERATOR, Kit


def test_replay_of_a_cause_runs_each_once(kit: Kit) -> None:
    runs = failed(kit, 6)
    operation = bulk.start("replay", OPERATOR, "disk is back", filters=SOLO)
    assert (operation.total, operation.state) == (6, "running")
    ended = drive(kit, operation)
    assert (ended.state, ended.done, ended.skipped, ended.failed) == ("done", 6, 0, 0)
    assert ended.finished_at
    assert {kit.run(run.pk).state for run in runs} == {"done"}
    assert all(kit.ledger.calls("a", run.pk) == 2 for run in runs)
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"replayed"}
    assert AuditRecord.objects.filter(action="bulk_replay", actor="olga", reason="disk is back").count() == 1
    assert AuditRecord.objects.filter(action="retry", actor="olga", reason="disk is back").count() == 6


def test_the_set_is_frozen(kit: Kit) -> None:
    failed(kit, 2)
    operation = bulk.start("replay", OPERATOR, "again", filters=SOLO)
    failed(kit, 3)
    assert drive(kit, operation).done == 2
    assert DeadLetter.objects.filter(state="open").count() == 3


def test_exact_sets_by_id(kit: Kit) -> None:
    """C88: one ended already, one deleted meanwhile, one twice, one of another workflow, one that is no id."""
    one, two, other = *failed(kit, 2), failed(kit, 1, workflow="saga")[0]
    good = kit.go("solo")
    gone = failed(kit, 1)[0]
    untouched = failed(kit, 2)
    ids = [str(two.pk), str(one.pk), str(two.pk).upper(), str(good.pk), str(gone.pk), str(other.pk), "nonsense"]
    operation = bulk.start("retry", OPERATOR, "again", ids=ids)
    assert operation.total == 6
    DeadLetter.objects.filter(run=gone).delete()
    gone.steps.all().delete()
    Run.objects.filter(pk=gone.pk).delete()
    ended = drive(kit, operation)
    assert (ended.done, ended.skipped, ended.failed) == (3, 3, 0)
    said = results(ended)
    assert [state for state, _ in said.values()] == ["done", "done", "skipped", "skipped", "done", "skipped"]
    assert "is done" in said[str(good.pk)][1]
    assert "no run" in said[str(gone.pk)][1]
    assert "there is no run" in said["nonsense"][1]
    assert {kit.run(run.pk).state for run in (one, two, other)} == {"done"}
    assert {kit.run(run.pk).state for run in untouched} == {"failed"}


def test_exact_sets_of_dead_letters(kit: Kit) -> None:
    failed(kit, 4)
    first, second, third, _ = DeadLetter.objects.order_by("id")
    operate.discard_dead_letter(second.pk, OPERATOR, "known")
    ids = [first.pk, str(first.pk), second.pk, third.pk, 999_999, "-1", "9" * 30]
    operation = bulk.start("discard", OPERATOR, "known fault", ids=ids)
    assert operation.total == 6
    ended = drive(kit, operation)
    assert (ended.done, ended.skipped) == (2, 4)
    said = results(ended)
    assert "discarded already" in said[str(second.pk)][1]
    assert "no dead letter 999999" in said["999999"][1]
    assert DeadLetter.objects.filter(state="open").count() == 1
    assert DeadLetter.objects.get(pk=first.pk).note == "known fault"


def test_cancel_of_what_matches(kit: Kit) -> None:
    live = [kit.submit("later", {"a": "fail:2"}, subject=f"s-{n}") for n in range(3)]
    other = kit.submit("timer")
    ended = drive(kit, bulk.start("cancel", OPERATOR, "wrong input", filters=RunFilters(workflow="kit-later")))
    assert (ended.done, ended.skipped) == (3, 0)
    assert {kit.run(run_id).state for run_id in live} == {"cancelled"}
    assert kit.run(other).state == "running"
    kit.cancel(other)
    kit.worker.work()


def test_dead_letters_of_one_run_are_replayed_together(kit: Kit) -> None:
    """Alone, the first would set the run going and the others would be refused."""
    run = kit.go("settled", {"f": "fail:1", "j": "fatal"})
    assert (run.state, DeadLetter.objects.filter(step="f").count()) == ("failed", 3)
    ended = drive(kit, bulk.start("replay", OPERATOR, "again", filters=DeadLetterFilters(step="f")))
    assert (ended.done, ended.skipped) == (3, 0)
    assert [kit.ledger.calls(f"f/{n}") for n in (1, 2, 3)] == [2, 2, 2]


def test_failed_undos_of_one_run_are_replayed_together(kit: Kit) -> None:
    run = kit.go("saga", {"d": "fatal", "undo:a": "fail:2", "undo:b": "fail:2"})
    assert run.compensation == "partial"
    undos = DeadLetter.objects.exclude(step="d")
    assert undos.count() == 2
    ended = drive(kit, bulk.start("replay", OPERATOR, "bucket is back", ids=[u.pk for u in undos]))
    assert (ended.done, ended.skipped) == (2, 0)
    assert (kit.run(run.pk).state, kit.run(run.pk).compensation) == ("failed", "done")


def test_a_step_and_an_undo_of_one_run(kit: Kit) -> None:
    """The step's replay runs the undone steps again too, so the undo is told apart."""
    kit.go("saga", {"d": "fail:1", "undo:b": "fail:2"})
    ended = drive(kit, bulk.start("replay", OPERATOR, "again", filters=DeadLetterFilters(workflow="kit-saga")))
    assert (ended.done, ended.skipped) == (1, 1)
    assert "settled with a note" in " ".join(detail for _, detail in results(ended).values())


def test_one_bad_item_does_not_stop_the_rest(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = failed(kit, 3)
    act = operate.retry_run

    def broken(run_id, actor, reason):
        if str(run_id) == str(runs[0].pk):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        act(run_id, actor, reason)

    monkeypatch.setattr(operate, "retry_run", broken)
    ended = drive(kit, bulk.start("retry", OPERATOR, "again", filters=RunFilters(workflow="kit-solo")))
    assert (ended.state, ended.done, ended.failed) == ("done", 2, 1)
    assert "division by zero" in results(ended)[str(runs[0].pk)][1]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"ids": []},
        {"filters": RunFilters()},
        {"filters": RunFilters(state=("failed",)), "ids": ["x"]},
        {"filters": DeadLetterFilters(step="a")},
        {"ids": ["x" * 101]},
        {"ids": [str(n) for n in range(10_001)]},
    ],
)
def test_what_is_refused(kit: Kit, asked) -> None:
    for call in (lambda: bulk.preview("retry", **asked), lambda: bulk.start("retry", OPERATOR, "why", **asked)):
        with pytest.raises(Invalid):
            call()
    assert BulkOperation.objects.count() == 0


def test_no_role_or_no_reason(kit: Kit) -> None:
    for role in ("viewer", "support", ""):
        with pytest.raises(NotAllowed):
            bulk.start("replay", Actor("x", role), "why", filters=SOLO)
    with pytest.raises(Invalid, match="say why"):
        bulk.start("replay", OPERATOR, "  ", filters=SOLO)
    with pytest.raises(Invalid, match="empty filter"):
        bulk.start("replay", OPERATOR, "why", filters=DeadLetterFilters(state=None))
    operation = bulk.start("replay", OPERATOR, "why", filters=SOLO)
    assert (operation.total, operation.state) == (0, "done")
    with pytest.raises(NotAllowed):
        bulk.stop(operation.pk, Actor("x", "support"))


def test_preview_counts_and_changes_nothing(kit: Kit) -> None:
    failed(kit, 3)
    live = kit.submit("timer")
    kit.worker.work()
    Run.objects.get(pk=live)
    step = DeadLetter.objects.order_by("id")[0].step_row
    type(step).objects.filter(pk=step.pk).update(external="charge card")
    seen = bulk.preview("retry", RunFilters(q="kit-"))
    assert (seen.total, seen.eligible, seen.missing) == (4, 3, 0)
    assert seen.states == {"failed": 3, "running": 1}
    assert seen.versions == {"kit-solo v1": 3, "kit-timer v1": 1}
    assert seen.steps["a"] >= 3
    assert seen.side_effects == {"charge card": 1}
    seen = bulk.preview("replay", SOLO)
    assert (seen.total, seen.eligible, seen.states, seen.steps) == (3, 3, {"open": 3}, {"a": 3})
    assert seen.side_effects == {"charge card": 1}
    assert bulk.preview("discard", SOLO).side_effects == {}
    assert bulk.preview("cancel", ids=[str(live), str(uuid.uuid4()), "x"]).missing == 2
    assert bulk.preview("replay", ids=[1, "x"]).missing >= 1
    assert BulkOperation.objects.count() == 0
    kit.cancel(live)
    kit.worker.work()
