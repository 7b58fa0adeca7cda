"""The other invariants, broken by hand: the doctor finds exactly that, mends it, and says so in the audit trail."""

from __future__ import annotations

import pytest

from orchestrator.engine.doctor.look import LIMIT
from orchestrator.models import DeadLetter, Run, Step


def test_dead_letter_missing(ward):
    run = ward.admit("failed")
    row = Step.objects.get(run=run, shard="480p", kind="step")
    DeadLetter.objects.all().delete()
    assert ward.look() == [("dead_letters", str(row.pk))]
    ward.mend("dead_letters")
    letter = DeadLetter.objects.get()
    assert (letter.step_row_id, letter.state, letter.attempts, letter.error) == (row.pk, "open", 4, row.error)


def test_dead_letter_open_of_a_row_that_is_done(ward):
    ward.admit("partial")
    ward.sql("UPDATE workflow_steps SET state = 'done', cause = NULL WHERE kind = 'compensation' AND state = 'failed'")
    ward.mend("dead_letters")
    assert Run.objects.get().compensation == "done", "the last open letter of an undo is gone"


def test_partial_undo_not_flagged(ward):
    run = ward.admit("partial")
    ward.sql("UPDATE workflow_runs SET compensation = 'done' WHERE id = %s", run.pk)
    assert ward.look() == [("partial_undo", str(run.pk))]
    ward.mend("partial_undo")
    assert Run.objects.get(pk=run.pk).compensation == "partial"


def test_partial_undo_flagged_for_nothing(ward):
    run = ward.admit("failed")
    ward.sql("UPDATE workflow_runs SET compensation = 'partial' WHERE id = %s", run.pk)
    ward.mend("partial_undo")
    assert Run.objects.get(pk=run.pk).compensation == "done"


def test_a_discarded_letter_of_an_undo_keeps_the_flag(ward):
    ward.admit("partial")
    DeadLetter.objects.update(state="discarded")
    assert ward.look() == []


_ALSO = (
    "INSERT INTO workflow_audit (run_id, action, actor, after) "
    "SELECT id, '{}', 'x', '{{\"state\": \"{}\"}}' FROM workflow_runs"
)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("DELETE FROM workflow_audit WHERE action = 'state'", "no record"),
        ("UPDATE workflow_audit SET after = '{\"state\": \"failed\"}' WHERE action = 'state'", "records end in failed"),
        (_ALSO.format("state", "done"), "from done to done by state"),
        (_ALSO.format("state", "running"), "from done to running"),
        (_ALSO.format("retry", "running"), "from done to running"),
    ],
)
def test_history(ward, change, text):
    run = ward.admit("done")
    ward.sql(change)
    found = ward.examine().broken
    assert {(b.invariant, b.id) for b in found} == {("history", str(run.pk))}
    assert any(text in b.detail for b in found)
    after, done = ward.repair()
    assert done == []
    assert not after.ok, "history is never rewritten"


def test_topics(ward):
    ward.admit("overdue", on_deadline="alert")
    ward.sql("UPDATE workflow_steps SET topic = 'gpu', started_at = now() WHERE state = 'running'")
    ward.sql("INSERT INTO workflow_topics (name, \"limit\", set_by, updated_at) "
             "VALUES ('gpu', 2, 'x', now() - interval '1 hour')")  # fmt: skip
    assert ward.look() == [("topics", "gpu")]
    ward.sql("UPDATE workflow_topics SET updated_at = now() + interval '1 second'")
    assert ward.look() == [], "what ran when the limit was lowered may end"
    ward.sql("UPDATE workflow_topics SET \"limit\" = 3, updated_at = now() - interval '1 hour'")
    assert ward.look() == []


def test_locks(ward):
    for _ in range(2):
        ward.admit("mid_fan_out")
    ward.sql("UPDATE workflow_steps SET lock_name = 'video:1' WHERE state = 'running'")
    assert ward.look() == [("locks", "video:1")]


def test_counters(ward):
    ward.admit("done")
    ward.admit("failed")
    ward.sql("DELETE FROM workflow_rollup_deltas")
    assert ward.look() == [("counters", "video-upload done"), ("counters", "video-upload failed")]
    ward.mend("counters")
    ward.admit("done")
    assert ward.look() == []


def test_many_are_cut_short_and_all_are_mended(ward):
    for _ in range(LIMIT + 5):
        ward.admit("queued")
    ward.sql("UPDATE workflow_runs SET pending = pending + 1")
    found = ward.examine().broken
    assert len(found) == LIMIT + 1
    assert "and more" in found[-1].detail
    after, done = ward.repair()
    assert after.ok
    assert len(done) == LIMIT + 5


def test_several_at_once_in_one_run(ward):
    run = ward.admit("mid_fan_out")
    ward.sql("UPDATE workflow_runs SET pending = 77, node_states = 'pppppp' WHERE id = %s", run.pk)
    ward.sql("UPDATE workflow_fan_outs SET open = 0, done = 3")
    ward.sql("UPDATE workflow_leases SET ended_at = now() - interval '1 hour'")
    ward.mend("claims", "pending", "fan_outs", "node_states", "dead_end")
    run.refresh_from_db()
    assert (run.state, run.pending, run.node_states) == ("running", 2, "dadppp")
