"""What the cases from the field ask of recovery: how soon it is noticed, what is told of it, and to whom."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.core.actor import ENGINE
from orchestrator.engine.tokens import create_token
from orchestrator.models import Alert, Attempt, Run, Step
from tests.faults.conftest import DETECT
from tests.faults.test_broker import tickets
from tests.harness.wait import wait_until


def told(run_id):
    """(what the API answers of a run, its page) as an admin sees them."""
    token = create_token("reader", "viewer", ENGINE)
    client = Client()
    answer = client.get(f"/api/v1/runs/{run_id}", HTTP_AUTHORIZATION=f"Bearer {token}")
    client.force_login(User.objects.create_superuser("root"))
    return answer.json(), client.get(f"/runs/{run_id}/").content.decode()


def metric(name, **labels):
    """Its value at ``/metrics``; 0 where it is not there."""
    text = Client().get("/metrics").content.decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return sum(s.value for s in samples if s.name == name and s.labels == labels)


def test_a_missed_deadline_looks_like_one_everywhere(world, receiver):
    """C35: the record, the API, the page, the metrics and one alert."""
    world.ready(3)
    run_id = world.submit("static", {"f": "coop_hold:x", "f/1": "ok"}, deadline=2)
    (run,) = world.finish(run_id, timeout=2 + 1 + DETECT)
    body, page = told(run_id)
    assert (body["state"], body["cause"]) == ("failed", "deadline")
    shards = {(s["step"], s["shard"]): (s["state"], s["cause"]) for s in body["steps"]}
    assert shards["f", "1"] == ("done", None)
    assert shards["f", "2"] == shards["f", "3"] == ("cancelled", "deadline")
    assert shards["j", ""] == ("skipped", "blocked")
    assert "deadline" in page and "deadline" in body["where"] and "f" in body["where"].replace(",", " ").split()
    labels = {"workflow": "kit-static"}
    assert metric("workflow_runs_failed_total", **labels, cause="deadline") == 1
    assert metric("workflow_runs_missed_deadline_total", **labels) == 1
    assert metric("workflow_step_attempts_total", **labels, step="f", outcome="deadline") == 2
    world.until(lambda: receiver.got)
    world.until(lambda: not Alert.objects.filter(sent_at=None).exists())
    assert [(m["run_id"], m["state"], m["cause"]) for _, m in receiver.got] == [(str(run.pk), "failed", "deadline")]
    assert Alert.objects.count() == 1


def test_a_retry_that_would_come_after_the_deadline_never_comes(world):
    """C37: it waits 60 s, the run has 3."""
    world.ready(1)
    run_id = world.submit("later", {"a": "always_fail"}, deadline=3)
    (run,) = world.finish(run_id, timeout=3 + DETECT)
    assert (run.state, run.cause) == ("failed", "deadline")
    row = world.row(run_id, "a")
    assert (row.state, row.cause, row.attempt, row.waiting_for) == ("cancelled", "deadline", 1, None)
    assert world.ledger.calls("a", run_id) == 1 and world.ledger.calls("b", run_id) == 0
    assert world.live.redis.zcard("rq:scheduled:default") == 0 and world.live.redis.llen("rq:queue:default") == 0
    # Were it still due one day, it would be now: nothing of an ended run is ever woken.
    Step.objects.filter(pk=row.pk).update(ready_at=datetime(2020, 1, 1, tzinfo=UTC))
    world.finish(world.submit("tries", {"a": "fail:1"}, subject="later"))  # the dispatcher has woken what is due
    assert world.ledger.calls("a", run_id) == 1


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_vanished_host_is_noticed_within_its_lease_and_two_sweeps(world, how):
    """C22, C28: the supervisor is gone too, and another worker is up."""
    first = world.start()
    run_id = world.submit("tries", {"a": "hold1:x"})
    world.called("a", run=run_id)
    world.worker()
    began = datetime.now(UTC)
    first.kill_all() if how == "killed" else first.pause()
    world.called("a", 2, run=run_id, timeout=DETECT + 10)
    attempt = Attempt.objects.get(run=run_id)
    assert attempt.cause == "worker_lost"
    assert (attempt.finished_at - began).total_seconds() < DETECT
    (run,) = world.finish(run_id)
    assert (run.state, world.row(run_id, "a").attempt, world.ledger.calls("b", run_id)) == ("done", 2, 1)


def test_redis_emptied_under_load_is_healed_within_ten_seconds(world):
    """C68: every run that stood in the queue has its ticket again, no attempt is spent."""
    world.ready(2)
    holding = [world.submit("solo", {"a": "hold:go"}, subject=f"h{i}") for i in range(2)]
    for run_id in holding:
        world.called("a", run=run_id)
    runs = [world.submit("chain", {"*": "sleep:0.01"}, subject=f"s{i}") for i in range(30)]
    for _ in range(2):
        wait_until(lambda: len(tickets(world)) == 30, 15)
        world.live.redis.flushdb()
        began = time.monotonic()
        wait_until(lambda: len(tickets(world)) == 30, 10)
        assert time.monotonic() - began < 10
    world.ledger.open("go")
    world.all_end()
    assert set(Run.objects.values_list("state", flat=True)) == {"done"}
    assert set(Step.objects.values_list("state", "attempt")) == {("done", 1)}
    assert not Attempt.objects.exists()
    assert world.ledger.effects("e") == 30 == len({e.run for e in world.ledger.of("e", ["end"])})
    assert {world.ledger.calls("a", run) for run in runs} == {1}


def test_a_deaf_sibling_of_a_failure_is_bounded_where_the_deadline_only_alerts(world):
    """Its own timeout ends it, and it is not tried again: the run has failed."""
    world.ready(2)
    run_id = world.submit("deaf", {"a": "fatal", "b": "swallow:60"})
    world.called("b", run=run_id)
    (run,) = world.finish(run_id, timeout=4 + 1 + DETECT)
    assert (run.state, run.cause, run.error["step"]) == ("failed", "error", "a")
    assert world.row(run_id, "b").state == "cancelled"
    assert Attempt.objects.get(run=run_id, step_row__step="b").attempt == 1
    assert world.ledger.calls("b", run_id) == 1 and world.ledger.calls("j", run_id) == 0
