"""Schedules with real dispatchers: one tick, one run, whoever leads."""

from __future__ import annotations

import time
from datetime import timedelta

from django.utils import timezone

from orchestrator.models import Run, Schedule
from tests.harness.wait import wait_until

NAME = "kit-nightly"


def every_second(overlap="allow"):
    Schedule.objects.filter(workflow=NAME).update(cron="* * * * * *", overlap=overlap, next_at=timezone.now())


def keys():
    return list(Run.objects.filter(workflow=NAME).order_by("id").values_list("idempotency_key", flat=True))


def test_two_dispatchers_one_tick_and_a_killed_leader_misses_none(world):
    """Ticks that passed between the death of one and the lead of the other fire once."""
    first = world.live.start_dispatcher()
    world.live.start_dispatcher()
    world.worker()
    every_second()
    wait_until(lambda: len(keys()) >= 3, 20)
    first.kill()
    before = len(keys())
    wait_until(lambda: len(keys()) >= before + 3, 30)
    Schedule.objects.update(paused=True)
    world.all_end()
    ticks = keys()
    assert len(set(ticks)) == len(ticks)
    row = Schedule.objects.get(workflow=NAME)
    assert Run.objects.filter(workflow=NAME).last().state == "done"
    assert row.last_at is not None and timezone.now() - row.last_at < timedelta(seconds=20)
    assert len(ticks) + row.missed >= 6


def test_a_run_that_is_live_still_lets_ticks_pass(world):
    world.live.start_dispatcher()
    every_second("skip")
    wait_until(lambda: len(keys()) == 1, 20)
    wait_until(lambda: Schedule.objects.get(workflow=NAME).skipped >= 2, 20)
    assert len(keys()) == 1
    world.worker()
    wait_until(lambda: len(keys()) >= 2, 20)
    Schedule.objects.update(paused=True)
    time.sleep(0.6)
    world.all_end()


def test_ticks_of_a_time_without_dispatcher_fire_once(world):
    Schedule.objects.filter(workflow=NAME).update(
        cron="0 * * * *", next_at=(timezone.now() - timedelta(hours=5)).replace(minute=0, second=0, microsecond=0)
    )
    world.start()
    wait_until(lambda: len(keys()) == 1, 20)
    time.sleep(1.2)
    assert len(keys()) == 1
    assert Schedule.objects.get(workflow=NAME).missed in (4, 5, 6)
    world.all_end()
