"""Beside cancel and retry: hold longer, settle an undo, share a link, start; and what a cancel foretells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid, NotAllowed, NotFound
from orchestrator.core.ids import new_run_id
from orchestrator.engine import operate
from orchestrator.models import AuditRecord, DeadLetter
from tests.engine.conftest import OPERATOR, Kit

ADMIN, SUPPORT = Actor("ada", "admin"), Actor("sue", "support")


def record(action: str) -> AuditRecord:
    return AuditRecord.objects.filter(action=action).latest("id")


def test_a_held_run_is_held_longer(kit: Kit) -> None:
    run = kit.go("held", {"b": "fail_until:x"})
    operate.hold_run(run.pk, "3h", OPERATOR, "asking the customer")
    moved = kit.run(run.pk).hold_until
    assert moved is not None and run.hold_until is not None
    assert timedelta(hours=2) < moved - run.hold_until < timedelta(hours=3)
    entry = record("hold")
    assert (entry.actor, entry.reason, entry.run_id) == ("olga", "asking the customer", run.pk)
    assert entry.before == {"hold_until": run.hold_until.isoformat()}
    kit.worker.work()
    assert kit.run(run.pk).state == "compensating"
    assert kit.ledger.calls("undo") == 0
    kit.cancel(run)
    kit.worker.work()
    assert (kit.run(run.pk).state, kit.ledger.calls("undo")) == ("failed", 1)


def test_what_cannot_be_held_longer(kit: Kit) -> None:
    run = kit.go("held", {"b": "fail_until:x"})
    for until, why in (("soon", "neither"), ("2020-01-01T00:00:00Z", "ahead"), ("2030-01-01T00:00:00", "time zone")):
        with pytest.raises(Invalid, match=why) as refused:
            operate.hold_run(run.pk, until, OPERATOR, "x")
        assert refused.value.field == "until"
    with pytest.raises(NotAllowed):
        operate.hold_run(run.pk, "1h", SUPPORT, "x")
    with pytest.raises(Invalid):
        operate.hold_run(run.pk, "1h", OPERATOR, " ")
    with pytest.raises(NotFound):
        operate.hold_run(new_run_id(), "1h", OPERATOR, "x")
    done = kit.go("one")
    with pytest.raises(Conflict, match="not held"):
        operate.hold_run(done.pk, "1h", OPERATOR, "x")
    kit.cancel(run)
    kit.worker.work()
    with pytest.raises(Conflict, match="not held"):
        operate.hold_run(run.pk, "1h", OPERATOR, "x")
    assert not AuditRecord.objects.filter(action="hold").exists()


def test_what_is_left_of_an_undo_is_settled_one_by_one_or_at_once(kit: Kit) -> None:
    run = kit.go(
        "saga", {"d": "always_fail", "undo:a": "always_fail", "undo:b": "always_fail", "undo:c": "always_fail"}
    )
    assert run.compensation == "partial"
    letters = DeadLetter.objects.filter(run=run, state="open", step_row__kind="compensation").order_by("id")
    ids = list(letters.values_list("id", flat=True))
    assert len(ids) >= 3
    with pytest.raises(NotAllowed):
        operate.settle_undos(run.pk, OPERATOR, "by hand")
    with pytest.raises(Invalid):
        operate.settle_undos(run.pk, ADMIN, "")
    step = DeadLetter.objects.get(run=run, step="d")
    with pytest.raises(Conflict):
        operate.settle_undos(run.pk, ADMIN, "not an undo", step.pk)
    assert operate.settle_undos(run.pk, ADMIN, "deleted by hand", ids[0]) == 1
    assert kit.run(run.pk).compensation == "partial"
    assert operate.settle_undos(run.pk, ADMIN, "the rest too") == len(ids) - 1
    assert kit.run(run.pk).compensation == "done"
    with pytest.raises(Conflict):
        operate.settle_undos(run.pk, ADMIN, "again")
    assert DeadLetter.objects.get(pk=ids[0]).note == "deleted by hand"
    assert DeadLetter.objects.get(pk=step.pk).state == "open"


def test_a_discarded_undo_leaves_the_run_partial_until_it_is_settled(kit: Kit) -> None:
    run = kit.go("saga", {"d": "always_fail", "undo:a": "always_fail", "undo:b": "always_fail"})
    first, second = DeadLetter.objects.filter(run=run, step_row__kind="compensation").order_by("id")
    operate.discard_dead_letter(first.pk, OPERATOR, "not now")
    operate.settle_dead_letter(second.pk, ADMIN, "by hand")
    assert kit.run(run.pk).compensation == "partial"
    operate.settle_dead_letter(first.pk, ADMIN, "by hand after all")
    assert kit.run(run.pk).compensation == "done"
    first.refresh_from_db()
    assert (first.state, first.note) == ("settled", "by hand after all")
    with pytest.raises(Conflict):
        operate.settle_dead_letter(first.pk, ADMIN, "again")


def test_a_link_is_recorded_with_its_end(kit: Kit) -> None:
    run = kit.go("one")
    until = operate.share_run(run.pk, 3600, SUPPORT, "customer on the phone")
    assert timedelta(minutes=59) < until - datetime.now(UTC) < timedelta(minutes=61)
    entry = record("share")
    assert (entry.actor, entry.role, entry.reason, entry.run_id) == ("sue", "support", "customer on the phone", run.pk)
    assert entry.after == {"until": until.isoformat(timespec="seconds")}
    for seconds in (0, 59, 91 * 86400):
        with pytest.raises(Invalid):
            operate.share_run(run.pk, seconds, SUPPORT, "x")
    with pytest.raises(NotAllowed):
        operate.share_run(run.pk, 3600, Actor("vera", "viewer"), "x")


def test_a_refused_start_leaves_its_record_and_no_run(kit: Kit) -> None:
    first, made = operate.start_run(OPERATOR, "by hand", workflow="kit-exclusive", subject_id="s", input={})
    assert made
    with pytest.raises(Conflict):
        operate.start_run(OPERATOR, "again", workflow="kit-exclusive", subject_id="s", input={})
    assert record("rejected").run_id == first
    assert AuditRecord.objects.filter(action="submit").count() == 1
    with pytest.raises(NotAllowed):
        operate.start_run(SUPPORT, workflow="kit-one", subject_id="s")
    kit.worker.work()


def test_a_cancel_foretells_what_is_skipped(kit: Kit) -> None:
    run_id = kit.submit("approval")
    kit.worker.work()
    seen = operate.preview_cancel(run_id)
    assert ([item.step for item in seen.undo], seen.running, seen.skipped) == (["a"], [], ["b"])
    kit.cancel(run_id)
    kit.worker.work()
    assert kit.states(run_id)["b"] == "skipped"


def test_what_failed_is_not_said_to_be_undone(kit: Kit) -> None:
    """An ``on_failure`` entry that undoes everything makes a retry re-execute all; what failed has failed though."""
    run = kit.go("saga", {"d": "always_fail"})
    why = {item.step: item.why for item in operate.preview_retry(run.pk).steps}
    assert why == {"a": "undone", "b": "undone", "c": "undone", "d": "failed"}
