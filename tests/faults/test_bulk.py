"""A bulk operation whose dispatcher is killed again and again: nothing is lost, nothing is done twice (C86)."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
from django.db import connection

from orchestrator.engine import bulk
from orchestrator.engine.find_dead_letters import DeadLetterFilters
from orchestrator.models import BulkItem, DeadLetter, Run
from tests.faults.conftest import OPERATOR
from tests.harness.wait import wait_until

COUNT = 500
KILLS = 5
_LOOK = """
    SELECT (SELECT count(*) FROM workflow_dead_letters WHERE state = 'replayed'),
           (SELECT count(*) FROM workflow_dead_letters WHERE state = 'open'),
           (SELECT count(*) FROM workflow_bulk_items WHERE state = 'done'),
           (SELECT done FROM workflow_bulk_operations)"""


def look() -> tuple[int, int]:
    """(replayed, open), in one snapshot; items and counts agree with the dead letters at every moment."""
    with connection.cursor() as cursor:
        cursor.execute(_LOOK)
        replayed, left, items, done = cursor.fetchone()
    assert replayed + left == COUNT
    assert replayed == items == done
    return replayed, left


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_replay_of_500_with_a_dispatcher_that_is_killed(world):
    world.live.configure(ORCHESTRATOR_BULK_PER_SECOND="100")
    world.start(2)
    for n in range(COUNT):
        world.submit("solo", {"a": "fail:1"}, subject=f"s-{n}")
    world.all_end(90)
    wait_until(lambda: DeadLetter.objects.filter(state="open").count() == COUNT, 10)
    operation = bulk.start("replay", OPERATOR, "disk is back", filters=DeadLetterFilters(workflow="kit-solo"))
    dice = random.Random(86)
    dispatchers = [world.live.processes[0], world.live.start_dispatcher()]
    killed, seen, mark = 0, [], 1
    while bulk.get(operation.pk).state == "running" and len(seen) < 4000:
        replayed, _ = look()
        seen.append(replayed)
        time.sleep(0.02)
        if killed < KILLS and mark <= replayed < COUNT:
            time.sleep(dice.random() / 10)  # anywhere in what it does
            dispatchers.pop(0).kill_all()
            mark = look()[0] + dice.randint(10, 90)
            dispatchers.append(world.live.start_dispatcher())
            killed += 1
    assert killed >= 3, (killed, seen[-1])
    assert seen == sorted(seen), "a replayed one was never open again"
    assert look() == (COUNT, 0)
    world.all_end(60)
    ended = bulk.get(operation.pk)
    assert (ended.state, ended.total, ended.done, ended.skipped, ended.failed) == ("done", COUNT, COUNT, 0, 0)
    assert set(BulkItem.objects.values_list("state", flat=True)) == {"done"}
    assert set(Run.objects.values_list("state", flat=True)) == {"done"}
    calls = Counter(entry.run for entry in world.ledger.of("a", ["start"]))
    assert set(calls.values()) == {2}, "once when it failed, once when it was replayed"
    assert len(calls) == COUNT


def test_the_command_line_waits_for_the_end(world):
    world.live.configure(ORCHESTRATOR_BULK_PER_SECOND="100")
    world.start()
    runs = [world.submit("solo", {"a": "fail:1"}, subject=f"s-{n}") for n in range(5)]
    world.all_end()
    kept = world.submit("tries", {"b": "fail:1"})
    world.all_end()
    verb = ("dead_letters", "replay", "--workflow", "kit-solo", "--reason", "disk is back")
    dry = world.live.answer(*verb, "--dry-run")
    assert (dry["total"], dry["eligible"], dry["states"]) == (5, 5, {"open": 5})
    done = world.live.answer(*verb, "--wait")
    assert (done["state"], done["done"], done["skipped"]) == ("done", 5, 0)
    world.all_end()
    assert {run.state for run in Run.objects.filter(pk__in=runs)} == {"done"}
    assert Run.objects.get(pk=kept).state == "failed"
    refused = world.live.manage("dead_letters", "replay", "--reason", "x")
    assert (refused.returncode, refused.stdout) == (2, "")
