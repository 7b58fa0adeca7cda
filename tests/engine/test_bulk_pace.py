"""How a bulk operation goes on: one first, at a pace, a pause after failures alike, stop and resume, nothing twice."""

from __future__ import annotations

import threading
import uuid

import pytest
from django.db import connections, transaction

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.engine import bulk
from orchestrator.engine.find import RunFilters
from orchestrator.models import AuditRecord, BulkItem, BulkOperation, DeadLetter
from tests.engine.bulk_help import SOLO, drive, due, failed
from tests.engine.conftest import OPERATOR, Kit


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
