"""Much at once: thousands of runs and shards, with every counter exact and every join once."""

from __future__ import annotations

from collections import Counter

import psutil
from django.contrib.auth.models import User
from django.test import Client

from orchestrator.core.metric_names import RUN_DURATION_BUCKET, STEP_ATTEMPTS
from orchestrator.engine import rollup
from orchestrator.engine.submit import submit_many
from orchestrator.models import Attempt, FanOut, Run, Step


def counted(metric: str, **labels: str) -> float:
    """The sum of a counter over all labels but these."""
    return sum(c.value for c in rollup.totals() if c.metric == metric and labels.items() <= c.labels.items())


def many(workflow: str, count: int, **more: object) -> None:
    submit_many([{"workflow": f"kit-{workflow}", "subject_id": f"s{i}", **more} for i in range(count)])


def test_a_thousand_chains_of_five(world):
    world.start(2)
    many("noop-chain", 1000)
    world.all_end(60)
    assert Counter(Run.objects.values_list("state", "node_states", "pending")) == {("done", "ddddd", 0): 1000}
    assert Counter(Step.objects.values_list("step", "state", "attempt")) == {(s, "done", 1): 1000 for s in "abcde"}
    assert counted(RUN_DURATION_BUCKET, workflow="kit-noop-chain", state="done") == 1000
    assert counted(STEP_ATTEMPTS, workflow="kit-noop-chain", outcome="done") == 5000
    assert Attempt.objects.count() == 0


def test_three_hundred_runs_of_the_shape_in_the_specification(world):
    world.start(2)
    many("noop-video", 300)
    world.all_end(60)
    assert Counter(Run.objects.values_list("state", "node_states", "pending")) == {("done", "dddd", 0): 300}
    assert Counter(FanOut.objects.values_list("total", "open", "done")) == {(3, 0, 3): 300}
    joins = Counter(e.run for e in world.ledger.entries() if e.step == "thumbnail" and e.event == "start")
    assert len(joins) == 300
    assert set(joins.values()) == {1}
    assert counted(STEP_ATTEMPTS, workflow="kit-noop-video", step="transcode", outcome="done") == 900


def test_ten_thousand_shards(world):
    """C11: the join once, a small run beside it is not held up, and the worker and the run's page stay small."""
    worker = world.start(2)
    run_id = world.submit("noop-wide", {"l": "numbers", "j": "count"}, input={"n": 10_000})
    world.until(lambda: FanOut.objects.filter(run=run_id, done__gt=0).exists(), 30)
    small = world.submit("noop-chain")
    world.finish(small, timeout=15)
    (run,) = world.finish(run_id, timeout=60)
    assert (run.state, run.output, run.pending) == ("done", 10_000, 0)
    assert world.ledger.calls("j") == 1
    assert FanOut.objects.values_list("total", "open", "done").get(run=run) == (10_000, 0, 10_000)
    assert set(Step.objects.filter(run=run, step="f").values_list("state", "attempt")) == {("done", 1)}
    sizes = [psutil.Process(p.pid).memory_info().rss / 2**20 for p in worker.children()]
    assert max(sizes) < 150, sizes
    reader = Client()
    reader.force_login(User.objects.create_superuser("root"))
    for query in ("", "?shards=f", "?show=all"):
        page = reader.get(f"/runs/{run_id}/{query}")
        assert page.status_code == 200 and len(page.content) < 1_000_000, (query, len(page.content))
