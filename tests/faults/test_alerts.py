"""One failure, one alert: whatever the number of dispatchers, and although the receiver is down at first."""

from __future__ import annotations

import json

import pytest

from orchestrator.models import Alert


def test_each_failed_run_is_told_once(world, receiver):
    for _ in range(3):
        world.live.start_dispatcher()
    world.worker(2)
    failed = [world.submit("solo", {"a": "fatal:token=s3cr3t-X"}) for _ in range(10)]
    world.finish(*failed, world.submit("solo"))
    world.until(lambda: len(receiver.got) >= 10)
    world.until(lambda: Alert.objects.filter(sent_at=None).count() == 0)
    assert sorted(message["run_id"] for _, message in receiver.got) == sorted(map(str, failed))
    _, message = receiver.got[0]
    assert (message["kind"], message["state"], message["cause"]) == ("failed", "failed", "error")
    assert "s3cr3t-X" not in json.dumps(message)


@pytest.mark.slow
def test_a_receiver_that_is_down_is_asked_again(world, receiver):
    receiver.down = True
    world.start()
    run_id = world.submit("solo", {"a": "fatal"})
    world.finish(run_id)
    world.until(lambda: receiver.refused)
    receiver.down = False
    world.until(lambda: receiver.got, timeout=40)
    assert [message["run_id"] for _, message in receiver.got] == [str(run_id)]
    alert = Alert.objects.get()
    world.until(lambda: Alert.objects.get().sent_at)
    assert alert.key == receiver.got[0][0]


def test_a_deadline_that_only_alerts_is_told_once_and_the_run_goes_on(world, receiver):
    world.start()
    run_id = world.submit("alert", {"a": "hold:go"}, deadline=1.0)
    world.until(lambda: receiver.got)
    assert receiver.got[0][1]["kind"] == "deadline"
    world.ledger.open("go")
    assert world.finish(run_id)[0].state == "done"
    assert len(receiver.got) == 1
