"""Each invariant of time broken by hand: the doctor finds exactly that, mends it, and says so in the audit trail."""

from __future__ import annotations

import pytest

from orchestrator.models import AuditRecord, Lease, Outbox, Run, Step
from orchestrator.transport.broker import connection as redis_connection
from tests.harness.factory import lease


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


def test_due_join_of_children(ward):
    run, child = ward.admit("approving"), ward.admit("done")
    row = Step.objects.get(run=run, waiting_for="approval")
    ward.sql("UPDATE workflow_steps SET waiting_for = 'children', waiting_name = 'started', ready_at = NULL "
             "WHERE id = %s", row.pk)  # fmt: skip
    ward.sql("UPDATE workflow_runs SET parent_run_id = %s, parent_step_id = %s WHERE id = %s", run.pk, row.pk, child.pk)
    assert ward.look() == [], "a moment is given"
    ward.sql("UPDATE workflow_runs SET updated_at = now() - interval '1 hour', finished_at = now() - interval '1 hour' "
             "WHERE id = %s", child.pk)  # fmt: skip
    ward.sql("UPDATE workflow_runs SET updated_at = now() - interval '1 hour'")
    assert ward.look() == [("due", str(row.pk))]
    ward.mend("due")
    run.refresh_from_db()
    assert run.node_states == "ddddda"
