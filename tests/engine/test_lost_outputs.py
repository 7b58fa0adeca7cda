"""Outputs kept by reference that are gone when the engine itself reads them: what to fan out over, whether to run."""

from __future__ import annotations

import shutil
import threading

import pytest

from orchestrator.engine import children
from orchestrator.models import Attempt, DeadLetter

ITEMS = {"emit": {"items": [1, 2, 3, 4]}}


@pytest.fixture
def stored(kit, tmp_path):
    """Every output is kept by reference; ``away`` and ``back`` move them."""
    kit.live.configure(ORCHESTRATOR_INLINE_BYTES="1")
    kept, away = tmp_path / "artifacts" / "runs", tmp_path / "away"
    kit.away = lambda: shutil.move(kept, away)
    kit.back = lambda: shutil.copytree(away, kept, dirs_exist_ok=True)
    return kit


def letters():
    return set(DeadLetter.objects.filter(state="open").values_list("step", "shard", "cause"))


def lost_before(kit, workflow, do):
    """A run whose ``l`` has stored its output, which is gone when ``m`` ends."""
    run_id = kit.submit(workflow, do)
    kit.worker.work(until=lambda: kit.ledger.effects("l"))
    kit.away()
    return run_id


def test_a_list_that_is_gone_before_its_fan_out_fails_that_step_alone(stored):
    run_id = lost_before(stored, "late-list", {"l": ITEMS})
    other = stored.submit("chain", subject="beside")
    stored.worker.work()
    run, row = stored.run(run_id), stored.row(run_id, "f")
    assert stored.run(other).state == "done"
    assert (run.state, run.cause, run.error["step"]) == ("failed", "artifact_missing", "f")
    assert stored.states(run) == {"l": "done", "m": "done", "f": "failed", "j": "skipped"}
    assert (row.state, row.cause, row.error["type"]) == ("failed", "artifact_missing", "ArtifactMissing")
    for told in ("output of l", stored.row(run_id, "l").output_ref, "retry the run from l"):
        assert told in row.error["message"]
    assert letters() == {("f", "", "artifact_missing")}
    assert stored.retry(run).cause == "artifact_missing"
    assert stored.retry(run, from_step="l").state == "done"
    assert [stored.ledger.calls(name) for name in ("l", "m", "f", "j")] == [2, 2, 4, 1]
    assert letters() == set()


@pytest.mark.parametrize("mended", ["put back", "made again"])
def test_a_list_that_is_gone_before_a_retry_leaves_its_shards_to_the_next(stored, mended):
    """What was done is kept; the shard that was to run again is neither lost nor run twice."""
    run = stored.go("late-list", {"l": ITEMS, "f/2": "fail:1"})
    assert (run.state, stored.row(run, "f", "2").state) == ("failed", "failed")
    before = [stored.ledger.calls(f"f/{i}") for i in (1, 2, 3)]
    stored.away()
    run = stored.retry(run)
    assert (run.state, run.cause, run.error["step"]) == ("failed", "artifact_missing", "f")
    assert letters() == {("f", "", "artifact_missing")}
    if mended == "put back":
        stored.back()
        run = stored.retry(run)
        assert [stored.ledger.calls(f"f/{i}") for i in (1, 2, 3)] == [before[0], 2, before[2]]
    else:
        run = stored.retry(run, from_step="l")
        assert [stored.ledger.calls(f"f/{i}") for i in (1, 2, 3)] == [before[0] + 1, 2, before[2] + 1]
    assert run.state == "done", stored.live.describe(run.pk)
    assert run.fan_outs.get().done == 4
    assert (letters(), stored.ledger.calls("f/4"), stored.ledger.calls("j")) == (set(), 1, 1)


def test_whatever_else_is_read_of_it_fails_the_step_that_needs_it(stored):
    """A condition, a lock's name, a child's input: each says so, and the steps that may fail hold nobody up."""
    words = {"emit": {"go": True, "name": "n", "child": {}, "items": [1]}}
    run_id = lost_before(stored, "late-words", {"l": words})
    stored.worker.work()
    children.start(stored.worker.conn)
    stored.worker.work()
    run = stored.run(run_id)
    assert run.state == "done", stored.live.describe(run_id)
    for step in ("when", "lock", "child", "list"):
        row = stored.row(run_id, step)
        assert (row.state, row.cause) == ("failed", "artifact_missing"), step
        assert "output of l" in row.error["message"]
    assert letters() == {(step, "", "artifact_missing") for step in ("when", "lock", "child", "list")}


def test_what_was_decided_before_a_retry_needs_no_output_to_be_decided_again(stored):
    run = stored.go("when", {"a": {"emit": {"yes": True}}, "b": "fail:1"})
    assert (run.state, run.error["step"]) == ("failed", "b")
    stored.away()
    run = stored.retry(run)
    assert (run.state, stored.ledger.calls("a"), stored.ledger.calls("b")) == ("done", 1, 2)


def test_a_storage_that_cannot_be_read_for_a_while_costs_no_attempt(stored, tmp_path):
    """It is waited for, as the database is; what has ended meanwhile is recorded afterwards."""
    run_id = stored.submit("late-list", {"l": ITEMS})
    stored.worker.work(until=lambda: stored.ledger.effects("l"))
    file = tmp_path / "artifacts" / stored.row(run_id, "l").output_ref
    kept = file.rename(tmp_path / "kept")
    file.symlink_to("/proc/self/mem")  # a file, and reading it is an input/output error
    timer = threading.Timer(1, lambda: kept.replace(file))
    timer.start()
    stored.worker.work()
    timer.join()
    stored.worker.work()
    run = stored.run(run_id)
    assert (run.state, stored.row(run_id, "m").attempt) == ("done", 1), stored.live.describe(run_id)
    assert (stored.ledger.calls("m"), Attempt.objects.count()) == (1, 0)


def test_a_run_that_ends_well_needs_no_output_of_its_last_steps(stored):
    """It is put together of theirs; where one is gone, the run has none of its own."""
    words = {"go": True, "name": "n", "child": {}, "items": ["one"]}
    run_id = stored.submit("late-words", {"l": {"emit": words}, "when": {"emit": "long"}, "list": "echo"})
    stored.worker.work()
    assert stored.row(run_id, "when").output_ref and stored.row(run_id, "list", "one").output_ref
    children.start(stored.worker.conn)
    stored.away()
    stored.worker.work()
    children.join(stored.worker.conn)
    run = stored.run(run_id)
    assert (run.state, run.output, run.output_ref) == ("done", None, None), stored.live.describe(run_id)
