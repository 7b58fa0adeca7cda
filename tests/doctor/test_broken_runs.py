"""Each invariant of runs broken by hand: the doctor finds exactly that, mends it, and says so in the audit trail."""

from __future__ import annotations

import pytest

from orchestrator.engine.doctor import Scope
from orchestrator.models import AuditRecord, FanOut, Outbox, Run, Step
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
