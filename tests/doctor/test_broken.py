"""Each invariant broken by hand: the doctor finds exactly that, mends it, and says so in the audit trail."""

from __future__ import annotations

import pytest

from orchestrator.engine.doctor import Scope
from orchestrator.engine.doctor.look import LIMIT
from orchestrator.models import AuditRecord, DeadLetter, FanOut, Lease, Outbox, Run, Step
from orchestrator.transport.broker import connection as redis_connection
from tests.harness.build import Build
from tests.harness.factory import lease


def test_pending(ward):
    other, run = ward.admit("retrying"), ward.admit("mid_fan_out")
    ward.sql("UPDATE workflow_runs SET pending = pending + 3 WHERE id = %s", run.pk)
    assert ward.look() == [("pending", str(run.pk))]
    assert ward.look(Scope(run=other.pk)) == []
    done = ward.mend("pending")
    assert "pending 5 -> 2" in done[0].did
    record = AuditRecord.objects.get(action="repair")
    assert (record.run_id, record.before["pending"], record.after["pending"]) == (run.pk, 5, 2)
    assert Run.objects.get(pk=run.pk).state == "running"


def test_fan_out_counters(ward):
    run = ward.admit("mid_fan_out")
    ward.sql("UPDATE workflow_fan_outs SET open = open - 1, done = done + 1")
    assert ward.look() == [("fan_outs", str(run.pk))]
    ward.mend("fan_outs")
    fan_out = FanOut.objects.get()
    assert (fan_out.total, fan_out.open, fan_out.done, fan_out.window) == (3, 2, 1, 1000)


def test_fan_out_without_a_counter_row(ward):
    ward.admit("done")
    ward.sql("DELETE FROM workflow_fan_outs")
    ward.mend("fan_outs")
    assert FanOut.objects.get().done == 3


@pytest.mark.parametrize(
    ("stage", "letters"),
    [
        ("mid_fan_out", "dafppp"),
        ("mid_fan_out", "daappp"),
        ("done", "dddcdd"),
        ("done", "dddpdd"),
        ("done", "ddddd!"),
        ("failed", "dfdbsb"),
    ],
)
def test_node_states(ward, stage, letters):
    run = ward.admit(stage)
    right = run.node_states
    assert right != letters
    ward.sql("UPDATE workflow_runs SET node_states = %s WHERE id = %s", letters, run.pk)
    ward.mend("node_states")
    assert Run.objects.get(pk=run.pk).node_states == right


def test_a_done_letter_too_early_opens_nothing_twice(ward):
    """The fan-out is active, its letter says done: the next step looks ready and is not."""
    run = ward.admit("mid_fan_out")
    ward.sql("UPDATE workflow_runs SET node_states = 'dddppp' WHERE id = %s", run.pk)
    ward.mend("node_states", "dead_end")
    assert Run.objects.get(pk=run.pk).node_states == "dadppp"
    assert not Step.objects.filter(step="thumbnail").exists()


def test_ended_without_a_time(ward):
    run = ward.admit("done")
    ward.sql("ALTER TABLE workflow_runs DROP CONSTRAINT workflow_runs_terminal_is_finished")
    ward.sql("UPDATE workflow_runs SET finished_at = NULL WHERE id = %s", run.pk)
    ward.mend("ended")
    assert Run.objects.get(pk=run.pk).finished_at is not None


def test_ended_and_still_exclusive(ward):
    run = ward.admit("failed")
    ward.sql("UPDATE workflow_runs SET exclusive_key = 'k' WHERE id = %s", run.pk)
    ward.mend("ended")
    assert Run.objects.get(pk=run.pk).exclusive_key is None


def test_ended_with_a_running_row(ward):
    run = ward.admit("cancelled")
    ward.sql(
        "UPDATE workflow_steps SET state = 'running', finished_at = NULL, token = 1, lease_id = %s, attempt = 1 "
        "WHERE run_id = %s AND step = 'thumbnail'",
        lease("w").pk, run.pk,
    )  # fmt: skip
    assert ("ended", str(run.pk)) in ward.look()
    ward.mend("ended", "pending", "node_states")
    row = Step.objects.get(run=run, step="thumbnail")
    assert (row.state, row.cause, row.token, row.lease_id) == ("cancelled", "cancelled", None, None)
    assert Run.objects.get(pk=run.pk).state == "cancelled"


def test_live_with_a_time_of_ending(ward):
    run = ward.admit("retrying")
    ward.sql("ALTER TABLE workflow_runs DROP CONSTRAINT workflow_runs_terminal_is_finished")
    ward.sql("UPDATE workflow_runs SET finished_at = now() WHERE id = %s", run.pk)
    ward.mend("ended")
    assert Run.objects.get(pk=run.pk).finished_at is None


def test_dead_end_of_shards_never_released(ward):
    run = ward.admit("retrying")
    ward.sql(
        "UPDATE workflow_steps SET state = 'pending', waiting_for = NULL WHERE run_id = %s AND state = 'waiting'",
        run.pk,
    )
    assert ward.look() == [("dead_end", str(run.pk))]
    ward.mend("dead_end")
    assert Step.objects.get(run=run, shard="480p").state == "queued"
    assert Outbox.objects.get().step == "transcode"


def test_dead_end_after_a_lost_join(ward):
    """All shards are done and nobody opened what follows."""
    build = Build()
    build.audit("submit", actor="x")
    build.done("probe", ago=600, secs=1)
    for shard in ("1080p", "720p", "480p"):
        build.done("transcode", shard, ago=590, secs=5)
    build.done("captions", ago=590, secs=5)
    run = build.save()
    ward.mend("dead_end")
    run.refresh_from_db()
    assert (run.node_states, run.pending, run.current_step) == ("dddapp", 1, "thumbnail")
    assert Outbox.objects.get().step == "thumbnail"


def test_dead_end_beside_work_that_goes_on(ward):
    build = Build()
    build.done("probe", ago=600, secs=1)
    build.running("captions", ago=5)
    run = build.save()
    assert ward.look() == [("dead_end", str(run.pk))]
    ward.mend("dead_end")
    assert Step.objects.filter(run=run, step="transcode", state="queued").count() == 3


def test_dead_end_where_everything_is_done(ward):
    run = ward.admit("done")
    ward.sql("DELETE FROM workflow_audit WHERE action = 'state'")
    ward.sql("UPDATE workflow_runs SET state = 'running', finished_at = NULL WHERE id = %s", run.pk)
    ward.mend("dead_end")
    assert Run.objects.get(pk=run.pk).state == "done"


def test_dead_end_of_a_failed_step_that_stopped_nothing(ward):
    build = Build()
    build.done("probe", ago=600, secs=1)
    for shard in ("1080p", "720p"):
        build.done("transcode", shard, ago=590, secs=5)
    row = build.row("transcode", "failed", "480p", cause="error", attempt=4, first_started_at=build.at(500))
    build.failed_attempts(row, 4, ago=500)
    build.dead_letter(row)
    build.done("captions", ago=590, secs=5)
    run = build.save()
    assert run.node_states == "dfdppp"
    ward.mend("dead_end")
    run.refresh_from_db()
    assert (run.state, run.stop, run.cause, run.node_states) == ("compensating", "failure", "error", "dfdbbb")
    assert Step.objects.filter(run=run, kind="compensation", state="queued").count() == 3


@pytest.mark.parametrize("left", ["pending", "done"])
def test_dead_end_of_an_undo(ward, left):
    run = ward.admit("compensating")
    ward.sql("UPDATE workflow_steps SET state = 'done', finished_at = now(), token = NULL, lease_id = NULL "
             "WHERE run_id = %s AND kind = 'compensation' AND state = 'running'", run.pk)  # fmt: skip
    ward.sql("UPDATE workflow_runs SET pending = pending - 1 WHERE id = %s", run.pk)
    if left == "done":
        ward.sql(
            "UPDATE workflow_steps SET state = 'done', finished_at = now() WHERE run_id = %s AND state = 'pending'",
            run.pk,
        )
        ward.sql("UPDATE workflow_runs SET pending = 0 WHERE id = %s", run.pk)
    ward.mend("dead_end")
    run.refresh_from_db()
    if left == "done":
        assert (run.state, run.compensation) == ("failed", "done")
    else:
        assert run.state == "compensating"
        assert Step.objects.filter(run=run, kind="compensation", state="queued").count() == 1


def test_dead_end_of_an_undo_that_has_no_rows(ward):
    run = ward.admit("compensating")
    ward.sql("DELETE FROM workflow_steps WHERE kind = 'compensation'")
    ward.sql("UPDATE workflow_runs SET pending = 0 WHERE id = %s", run.pk)
    ward.mend("dead_end")
    assert Step.objects.filter(run=run, kind="compensation").exists()


def test_deadline(ward):
    run = ward.admit("overdue")
    assert ward.look() == [("deadline", str(run.pk))]
    ward.mend("deadline")
    run.refresh_from_db()
    assert (run.stop, run.cause) == ("deadline", "deadline")


def test_deadline_that_nobody_noted(ward):
    run = ward.admit("retrying")
    ward.sql("UPDATE workflow_runs SET deadline_at = now() - interval '1 hour' WHERE id = %s", run.pk)
    ward.mend("deadline")
    run.refresh_from_db()
    assert run.deadline_missed_at is not None
    assert run.stop == "deadline"


def test_stopping_too_long(ward):
    run = ward.admit("overdue")
    ward.sql(
        "UPDATE workflow_runs SET stop = 'deadline', stopped_at = now() - interval '2 minutes' WHERE id = %s", run.pk
    )
    found = ward.examine().broken
    assert [b.invariant for b in found] == ["deadline"]
    assert "attempts that do not end" in found[0].detail


def test_claims(ward):
    run = ward.admit("mid_fan_out")
    row = Step.objects.get(run=run, state="running")
    Lease.objects.update(ended_at="2020-01-01T00:00:00Z")
    assert ward.look() == [("claims", str(row.pk))]
    ward.mend("claims")
    row.refresh_from_db()
    assert (row.state, row.waiting_for, row.attempt) == ("waiting", "retry", 1)


def test_claims_of_a_lease_that_is_not_there(ward):
    ward.admit("mid_fan_out")
    Lease.objects.all().delete()
    ward.mend("claims")


def test_a_lease_that_has_just_run_out_is_for_the_sweep(ward):
    ward.admit("mid_fan_out")
    ward.sql("UPDATE workflow_leases SET expires_at = now() - interval '1 second'")
    assert ward.look() == []


def test_leases(ward):
    gone = lease("w", alive=False)
    assert ward.look() == [("leases", str(gone.pk))]
    ward.mend("leases")
    gone.refresh_from_db()
    assert gone.ended_at is not None


@pytest.mark.parametrize("when", ["now() - interval '1 hour'", "NULL"])
def test_due_retry(ward, when):
    run = ward.admit("retrying")
    row = Step.objects.get(run=run, state="waiting")
    ward.sql(f"UPDATE workflow_steps SET ready_at = {when} WHERE id = %s", row.pk)
    assert ward.look() == [("due", str(row.pk))]
    ward.mend("due")
    row.refresh_from_db()
    assert row.state == "queued"


def test_due_start(ward):
    run = ward.admit("delayed")
    ward.sql("UPDATE workflow_runs SET available_at = now() - interval '1 hour' WHERE id = %s", run.pk)
    assert ward.look() == [("due", str(run.pk))]
    ward.mend("due")
    run.refresh_from_db()
    assert run.started_at is not None
    assert run.node_states == "appppp"


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


def test_dispatcher(ward):
    ward.admit("retrying")
    ward.sql("UPDATE workflow_beats SET beat_at = now() - interval '1 hour'")
    assert ward.look() == [("dispatcher", "")]
    ward.sql("DELETE FROM workflow_beats")
    assert ward.look() == [("dispatcher", "")]


def test_outbox(ward):
    run = ward.admit("retrying")
    Outbox.objects.create(run_id=run.pk, definition_id=run.definition_id, step="transcode", queue="media-heavy")
    assert ward.look() == []
    ward.sql("UPDATE workflow_outbox SET created_at = now() - interval '1 hour'")
    assert ward.names() == {"outbox"}
    ward.mend("outbox")
    assert redis_connection().llen("rq:queue:media-heavy") == 1


def test_tickets(ward):
    run = ward.admit("mid_fan_out")
    redis_connection().delete("rq:queue:media-heavy")
    assert ward.look() == [("tickets", str(run.pk))]
    ward.mend("tickets")
    assert redis_connection().llen("rq:queue:media-heavy") == 1
    record = AuditRecord.objects.get(action="repair")
    assert record.run_id == run.pk


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


def test_due_start_after_another_run(ward):
    """It waits for a run that lives; when that has ended a while ago, its start is due."""
    first = ward.admit("retrying")
    later = ward.admit("delayed")
    ward.sql("UPDATE workflow_runs SET available_at = NULL, after_runs = ARRAY[%s]::uuid[], "
             "submitted_at = now() - interval '1 hour' WHERE id = %s", first.pk, later.pk)  # fmt: skip
    assert ward.look() == []
    done = ward.admit("done")
    ward.sql("UPDATE workflow_runs SET after_runs = ARRAY[%s]::uuid[] WHERE id = %s", done.pk, later.pk)
    assert ward.look() == [("due", str(later.pk))]
    ward.sql("UPDATE workflow_runs SET finished_at = now() WHERE id = %s", done.pk)
    assert ward.look() == [], "a moment is given"
    ward.sql("UPDATE workflow_runs SET finished_at = now() - interval '1 hour' WHERE id = %s", done.pk)
    ward.mend("due")
    later.refresh_from_db()
    assert later.started_at is not None


def test_due_start_of_an_exclusive_run(ward):
    holder, later = ward.admit("retrying"), ward.admit("delayed")
    ward.sql("UPDATE workflow_runs SET exclusive_key = 'k', submitted_at = now() - interval '1 hour'")
    ward.sql("UPDATE workflow_runs SET available_at = NULL WHERE id = %s", later.pk)
    assert holder.pk > later.pk or ward.look() == []
    ward.sql("UPDATE workflow_runs SET exclusive_key = NULL WHERE id = %s", holder.pk)
    assert ward.look() == [("due", str(later.pk))]


def test_due_approval(ward):
    run = ward.admit("approving")
    row = Step.objects.get(run=run, waiting_for="approval")
    ward.sql("UPDATE workflow_steps SET ready_at = NULL WHERE id = %s", row.pk)
    assert ward.look() == [], "an approval may wait for ever"
    ward.sql("UPDATE workflow_steps SET ready_at = now() - interval '1 hour' WHERE id = %s", row.pk)
    assert ward.look() == [("due", str(row.pk))]
    ward.mend("due")
    assert Run.objects.get(pk=run.pk).stop == "failure"


def test_due_join(ward):
    run = ward.admit("retrying")
    ward.sql("UPDATE workflow_fan_outs SET join_due_at = now() - interval '1 hour'")
    assert ward.look() == [("due", str(run.pk))]
    ward.mend("due")
    run.refresh_from_db()
    assert run.node_states == "dddapp"


@pytest.mark.parametrize(("kind", "name"), [("queue", "media-heavy"), ("workflow", "video-upload")])
def test_what_is_paused_has_no_ticket(ward, kind, name):
    run = ward.admit("mid_fan_out")
    redis_connection().delete("rq:queue:media-heavy")
    ward.sql("INSERT INTO workflow_pauses (kind, name, reason, actor, until) "
             "VALUES (%s, %s, 'x', 'x', now() + interval '1 hour')", kind, name)  # fmt: skip
    assert ward.look() == []
    ward.sql("UPDATE workflow_pauses SET until = now() - interval '1 minute'")
    assert ward.look() == [("tickets", str(run.pk))]
