"""Bulk operations: exact sets, a result for each, one first, a pause after failures alike, nothing twice."""

from __future__ import annotations

import threading
import uuid

import pytest
from django.db import connection, connections, transaction

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound
from orchestrator.engine import bulk, operate
from orchestrator.engine.find import RunFilters
from orchestrator.engine.find_dead_letters import DeadLetterFilters
from orchestrator.models import AuditRecord, BulkItem, BulkOperation, DeadLetter, Run
from tests.engine.conftest import OPERATOR, Kit

SOLO = DeadLetterFilters(workflow="kit-solo")


def due() -> None:
    """The pace and the look at the first one's run are due now."""
    BulkOperation.objects.update(due_at="2000-01-01T00:00:00Z", watch_at="2000-01-01T00:00:00Z")


def drive(kit: Kit, operation: BulkOperation, rounds: int = 200) -> BulkOperation:
    """A dispatcher and a worker, until the operation is no longer under way."""
    for _ in range(rounds):
        due()
        bulk.advance(seconds=5, limit=1)
        kit.worker.work()
        now = bulk.get(operation.pk)
        if now.state != "running":
            return now
    raise AssertionError(f"still {now.state} after {rounds} rounds")


def results(operation: BulkOperation) -> dict[str, tuple[str, str]]:
    return {item.target: (item.state, item.detail) for item in operation.items.order_by("position")}


def failed(kit: Kit, count: int, do: str = "fail:1", workflow: str = "solo") -> list[Run]:
    made = [kit.submit(workflow, {"a": do}, subject=f"s-{n}") for n in range(count)]
    kit.worker.work()
    runs = [kit.run(run_id) for run_id in made]
    assert {run.state for run in runs} == {"failed"}
    return runs


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
    assert "not a run id" in said["nonsense"][1]
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


def test_one_first_then_the_rest(kit: Kit) -> None:
    failed(kit, 3)
    operation = bulk.start("replay", OPERATOR, "again", filters=SOLO)
    for _ in range(3):
        due()
        bulk.advance(seconds=5)
    assert bulk.get(operation.pk).done == 1
    kit.worker.work()
    due()
    bulk.advance(seconds=5)
    due()
    bulk.advance(seconds=5)
    assert bulk.get(operation.pk).done == 3
    kit.worker.work()


def test_the_rest_does_not_wait_for_ever(kit: Kit) -> None:
    failed(kit, 3)
    operation = bulk.start("replay", OPERATOR, "again", filters=SOLO)
    due()
    bulk.advance(seconds=5)
    BulkOperation.objects.update(first_until="2000-01-01T00:00:00Z")
    for _ in range(3):
        due()
        bulk.advance(seconds=5)
    assert bulk.get(operation.pk).done == 3
    kit.worker.work()


def test_five_failures_alike_pause_it_and_it_can_be_resumed(kit: Kit) -> None:
    runs = failed(kit, 9, "fail_until:mended")
    operation = drive(kit, bulk.start("retry", OPERATOR, "try", filters=RunFilters(workflow="kit-solo")))
    assert (operation.state, operation.done) == ("paused", 5)
    assert "5 in a row failed in the same way (a: RuntimeError: mended is not mended)" in operation.note
    assert AuditRecord.objects.get(action="bulk_pause").actor == "engine"
    bulk.advance(seconds=5)
    assert bulk.get(operation.pk).done == 5
    kit.ledger.open("mended")
    bulk.resume(operation.pk, OPERATOR, "mended")
    operation = drive(kit, operation)
    assert (operation.state, operation.done, operation.note) == ("done", 9, "")
    assert sorted(kit.run(run.pk).state for run in runs) == ["done"] * 4 + ["failed"] * 5
    outcomes = list(operation.items.order_by("position").values_list("outcome", flat=True))
    assert outcomes[:5] == ["failed_again"] * 5
    assert AuditRecord.objects.get(action="bulk_resume").reason == "mended"


def test_failures_that_differ_do_not_pause_it(kit: Kit) -> None:
    for n in range(8):
        kit.submit("solo", {"a": f"always_fail:{'abcdefgh'[n]} is broken"}, subject=f"s-{n}")
    kit.worker.work()
    operation = drive(kit, bulk.start("replay", OPERATOR, "again", filters=SOLO))
    assert (operation.state, operation.done) == ("done", 8)


def test_a_success_between_ends_the_row(kit: Kit) -> None:
    for n in range(10):
        kit.submit("solo", {"a": "fail:1" if n == 4 else "always_fail"}, subject=f"s-{n}")
    kit.worker.work()
    operation = drive(kit, bulk.start("replay", OPERATOR, "again", filters=SOLO))
    assert (operation.state, operation.done) == ("paused", 10)


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


def test_an_action_that_breaks_off_leaves_its_item(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action and its record are one transaction: a process that dies between them has done neither."""

    class Killed(BaseException):
        pass

    failed(kit, 1)
    operation = bulk.start("replay", OPERATOR, "again", filters=SOLO)
    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.engine.bulk_work._record", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            bulk.advance()
    assert DeadLetter.objects.get().state == "open"
    assert BulkItem.objects.get().state == "pending"
    assert drive(kit, operation).done == 1
    assert kit.ledger.calls("a") == 2


def test_stop_and_resume(kit: Kit) -> None:
    failed(kit, 3)
    operation = bulk.start("replay", OPERATOR, "again", filters=SOLO)
    bulk.stop(operation.pk, OPERATOR, "not now")
    due()
    assert bulk.advance(seconds=5) == 0
    assert bulk.get(operation.pk).done == 0
    with pytest.raises(Conflict, match="is stopped"):
        bulk.stop(operation.pk, OPERATOR)
    bulk.resume(operation.pk, OPERATOR)
    assert drive(kit, operation).done == 3
    for move in (bulk.stop, bulk.resume):
        with pytest.raises(Conflict, match="is done"):
            move(operation.pk, OPERATOR)
    with pytest.raises(NotFound):
        bulk.stop(uuid.uuid4(), OPERATOR)
    with pytest.raises(NotFound):
        bulk.get("nonsense")


def test_the_pace(kit: Kit) -> None:
    kit.live.configure(ORCHESTRATOR_BULK_PER_SECOND="2")
    failed(kit, 8)
    operation = bulk.start("discard", OPERATOR, "known", filters=SOLO)
    bulk.advance(seconds=5)
    bulk.advance(seconds=5)
    assert 1 <= bulk.get(operation.pk).done <= 4
    drive(kit, operation)


def test_two_dispatchers_share_the_work(kit: Kit) -> None:
    kit.live.configure(ORCHESTRATOR_BULK_PER_SECOND="10000")
    failed(kit, 30)
    operation = bulk.start("discard", OPERATOR, "known", filters=SOLO)

    def work() -> None:
        try:
            for _ in range(300):
                bulk.advance(seconds=1)
                if bulk.get(operation.pk).state == "done":
                    return
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = bulk.get(operation.pk)
    assert (ended.state, ended.done, ended.skipped) == ("done", 30, 0)
    assert AuditRecord.objects.filter(action="discard").count() == 30


def test_an_operation_that_another_holds_is_passed_over(kit: Kit) -> None:
    failed(kit, 2)
    bulk.start("discard", OPERATOR, "known", filters=SOLO)
    answers = []

    def work() -> None:
        answers.append(bulk.advance(seconds=1))
        connections.close_all()

    with transaction.atomic():
        BulkOperation.objects.select_for_update().get()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)
    assert answers == [0]


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
