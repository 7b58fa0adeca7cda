"""More of what has gone wrong elsewhere: who ends last, who comes back under an old name, who looks on meanwhile."""

from __future__ import annotations

import time

import pytest
from django.db import connection, connections

from orchestrator.engine.db import connect
from orchestrator.models import Alert, Attempt, AuditRecord, DeadLetter, Lease, Run, Step
from tests.engine.racing import claim
from tests.faults.conftest import DETECT
from tests.harness.inline import make_lease

#: Lease and two sweeps of Live's timings, the start of a worker, and a busy machine.
RECOVERED = 2 + 2 * 0.3 + 10


def cut() -> None:
    """Ends every connection to the database but the test's."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("last", [True, False])
def test_a_shard_that_fails_for_good_whether_last_or_first(world, last):
    """C07: the join never runs, one dead letter, everything that was done is undone, in reverse."""
    world.ready(3)
    run_id = world.submit("saga-fan", {"f": "ok" if last else "hold:others", "f/2": "hold:failing; always_fail"})
    for shard in ("1", "2", "3"):
        world.called(f"f/{shard}", run=run_id)
    shards = Step.objects.filter(run=run_id, step="f")
    if last:
        world.until(lambda: shards.filter(state="done").count() == 2)
    world.ledger.open("failing")
    world.until(lambda: shards.filter(state="failed").exists())
    world.ledger.open("others")
    (run,) = world.finish(run_id)
    assert (run.state, run.cause, run.error["step"], run.error["shard"]) == ("failed", "error", "f", "2")
    assert (run.compensation, world.ledger.calls("c", run_id)) == ("done", 0)
    assert (world.row(run_id, "c").state, world.row(run_id, "c").cause) == ("skipped", "blocked")
    undone = world.ledger.order(run_id, "undo")
    assert undone[-1] == "undo:a" and len(undone) == len(set(undone)) == 4
    assert DeadLetter.objects.get(run=run).shard == "2"


def test_what_is_behind_a_failure_is_skipped_while_the_rest_runs_on(world):
    """C15: in the transaction that stops the run, not when it ends."""
    world.ready(2)
    run_id = world.submit("branches", {"x2": "always_fail", "y": "hold:go"})
    world.called("y", run=run_id)
    world.until(lambda: Step.objects.filter(run=run_id, step="x2", state="failed").exists())
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.stop, run.error["step"]) == ("running", "failure", "x2")
    blocked = Step.objects.filter(run=run_id, state="skipped", cause="blocked").values_list("step", flat=True)
    assert set(blocked) == {"x3", "j", "e"}
    assert not Step.objects.filter(run=run_id, state="pending").exists()
    world.ledger.open("go")
    (run,) = world.finish(run_id)
    assert (run.state, world.row(run_id, "y").state) == ("failed", "done")
    assert world.live.redis.zcard("rq:deferred:default") == 0


def test_shards_that_all_fail_at_once_are_one_failure(world):
    """C19: five processes, one instant, one undo, one event."""
    world.ready(5)
    run_id = world.submit("hook", {"f": f"meet:{time.time() + 1.5}; always_fail"})
    (run,) = world.finish(run_id)
    assert (run.state, run.cause) == ("cancelled", "error")
    assert world.ledger.calls("undo", run_id) == 1
    assert AuditRecord.objects.filter(run=run, action="state", after__state="compensating").count() == 1
    assert Step.objects.filter(run=run, step="f", state="failed").count() == 5


@pytest.mark.slow
def test_a_worker_that_comes_back_around_the_end_of_its_lease(world):
    """C26: whoever is first, the sweep or the late result, the other changes nothing."""
    world.start()
    for i, offset in enumerate((1.7, 2.1, 2.5, 2.9)):
        run_id = world.submit("tries", {"a": f"hold1:g{i}"}, subject=f"s{i}")
        world.called("a", run=run_id)
        process = world.handler_process("a", run_id)
        worker = next(w for w in world.live.processes if process.pid in [c.pid for c in w.children()])
        worker.pause()
        world.ledger.open(f"g{i}")
        time.sleep(offset)
        worker.resume()
        (run,) = world.finish(run_id, timeout=DETECT + 10)
        row = world.row(run_id, "a")
        assert run.state == "done" and row.attempt == world.ledger.calls("a", run_id), offset
        assert world.ledger.calls("b", run_id) == 1
        assert Attempt.objects.filter(run=run).count() == row.attempt - 1


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_worker_restarted_at_once_under_the_same_name(world, forgotten):
    """C28: it does not vouch for the attempt of the one before, whether Redis still knows that one or not."""
    world.live.start_dispatcher()
    named = ("worker", "worker", "default", "--name", "w1")
    first = world.live.start(*named)
    run_id = world.submit("tries", {"a": "hold1:x"})
    world.called("a")
    first.kill_all()
    for key in world.live.redis.keys("rq:worker*") if forgotten else []:
        world.live.redis.delete(key)
    began = time.monotonic()
    world.live.start(*named)
    world.called("a", 2, timeout=RECOVERED + 10)
    assert time.monotonic() - began < RECOVERED
    (run,) = world.finish(run_id)
    assert (run.state, world.row(run_id, "a").attempt, world.ledger.calls("b")) == ("done", 2, 1)
    assert len(set(Lease.objects.values_list("token", flat=True))) == Lease.objects.count() >= 2


def test_recovery_goes_on_although_the_database_ends_its_connections(world):
    """C30: fifty lost attempts, and the sweep is interrupted again and again."""
    runs = [world.submit("tries", subject=f"s{i}") for i in range(50)]
    mine = connect("lost worker")
    gone = make_lease(mine, "lost worker")
    assert len(claim(mine, gone, *[(run, "a", 1) for run in runs])) == 50
    mine.close()
    world.start(2)
    world.finish(world.submit("solo"))  # dispatcher and worker are up
    Lease.objects.filter(pk=gone.lease_id).update(expires_at="2020-01-01T00:00:00Z")
    for _ in range(12):
        cut()
        time.sleep(0.1)
    world.all_end()
    assert Run.objects.filter(pk__in=runs, state="done").count() == 50
    assert set(Step.objects.filter(run__in=runs).values_list("step", "attempt")) == {("a", 2), ("b", 1)}
    assert set(Attempt.objects.filter(run__in=runs).values_list("attempt", "cause")) == {(1, "worker_lost")}


@pytest.mark.parametrize("count", [20])
def test_five_dispatchers_and_deadlines_in_one_second(world, monkeypatch, count):
    """C32: one record, one undo and one alert each."""
    monkeypatch.setenv("ALERT_WEBHOOK_URL", "http://127.0.0.1:9/nobody")
    for _ in range(4):
        world.live.start_dispatcher()
    world.ready(1)
    runs = [world.submit("timer", subject=f"s{i}") for i in range(count)]
    world.until(lambda: Step.objects.filter(run__in=runs, waiting_for="timer").count() == count)
    Run.objects.filter(pk__in=runs).update(deadline_at=Run.objects.get(pk=runs[0]).submitted_at)
    assert {(run.state, run.cause, run.compensation) for run in world.finish(*runs)} == {("failed", "deadline", "done")}
    assert AuditRecord.objects.filter(action="deadline", run__in=runs).count() == count
    assert [world.ledger.calls("undo", run) for run in runs] == [1] * count
    world.until(lambda: Alert.objects.count() >= count)
    assert Alert.objects.count() == count


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York"])
def test_processes_in_another_time_zone(world, monkeypatch, zone):
    """C39: a duration is elapsed time, whatever the process or its database session calls local."""
    for name in ("TZ", "PGTZ", "TIME_ZONE"):
        monkeypatch.setenv(name, zone)
    connections.close_all()
    world.start()
    run_id = world.submit("static", {"f/1": "fail:1"}, deadline="5m")
    delayed = world.submit("solo", subject="later", delay="1s", deadline="5m")
    for run in world.finish(run_id, delayed):
        assert run.state == "done"
        assert (run.deadline_at - run.started_at).total_seconds() == 300
        assert 0 <= (run.finished_at - run.started_at).total_seconds() < 60
    waited = world.ledger.of("f/1", ["start"], run_id)
    assert 1 <= waited[1].at - waited[0].at < 20
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(extract(epoch FROM finished_at - started_at)), min(extract(epoch FROM now() - "
                       "finished_at)) FROM workflow_steps WHERE started_at IS NOT NULL")  # fmt: skip
        longest, since = cursor.fetchone()
    assert 0 <= longest < 60 and 0 <= since < 60


@pytest.mark.slow
def test_connections_that_end_between_jobs(world):
    """C70: an idle worker, whose every connection is gone, loses no attempt of the next job."""
    world.start()
    world.finish(world.submit("chain"))
    for i in range(5):
        cut()
        run_id = world.submit("chain", subject=f"s{i}")
        (run,) = world.finish(run_id)
        assert run.state == "done"
        assert set(run.steps.values_list("attempt", flat=True)) == {1}
        assert [world.ledger.calls(step, run_id) for step in "abcde"] == [1] * 5
