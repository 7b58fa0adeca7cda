"""Outputs and errors of every size, and outputs kept by reference that are gone (C73)."""

from __future__ import annotations

import shutil

import pytest

from orchestrator.models import DeadLetter

INLINE = 1000


@pytest.mark.parametrize(("size", "by_reference"), [(INLINE - 1, False), (INLINE, False), (INLINE + 1, True)])
def test_around_the_size_that_stands_on_the_row(kit, size, by_reference):
    kit.live.configure(ORCHESTRATOR_INLINE_BYTES=str(INLINE))
    run = kit.go("dynamic", {"l": {"emit": [1]}, "f": "sized", "j": "joined"}, input={"n": size})
    row = kit.row(run, "f", "1")
    assert (run.state, bool(row.output_ref), row.output is None) == ("done", by_reference, by_reference)


def test_an_output_past_the_limit_is_a_failed_attempt_that_names_it(kit):
    run = kit.go("solo", {"a": "sized"}, input={"n": 65 * 1024 * 1024})
    assert (run.state, run.cause) == ("failed", "invalid_output")
    message = kit.row(run, "a").error["message"]
    assert "68,157,440" in message and "67,108,864" in message
    assert kit.go("solo").state == "done"


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_a_deeply_nested_output_is_stored_or_refused(kit, depth):
    run = kit.go("solo", {"a": "deep"}, input={"n": depth})
    assert run.state == "done" or run.cause == "invalid_output", run.error
    assert depth < 1000 or run.state == "failed"


@pytest.mark.parametrize("error", ["huge_traceback", "recurse"])
def test_a_huge_traceback_is_stored_short(kit, error):
    run = kit.go("solo", {"a": error})
    assert (run.state, run.cause) == ("failed", "error")
    assert 0 < len(kit.row(run, "a").error["traceback"]) < 50_000
    assert len(DeadLetter.objects.get().error["traceback"]) < 50_000


def test_an_output_that_is_gone_fails_who_reads_it_and_a_retry_from_its_maker_mends_it(kit, tmp_path):
    kit.live.configure(ORCHESTRATOR_INLINE_BYTES=str(INLINE))
    run_id = kit.submit("static", {"f/1": "big", "j": "joined"})
    kit.worker.work(until=lambda: kit.run(run_id).fan_outs.get().done == 3)
    assert kit.ledger.calls("j") == 0
    shutil.rmtree(tmp_path / "artifacts" / "runs")
    kit.worker.work()
    run = kit.run(run_id)
    assert (run.state, run.cause, run.error["step"]) == ("failed", "artifact_missing", "j")
    assert kit.retry(run).cause == "artifact_missing"
    assert kit.retry(run, from_step="f").state == "done"
    assert kit.ledger.calls("f/1") == 2


def test_a_list_kept_by_reference_is_fanned_out_over(kit):
    kit.live.configure(ORCHESTRATOR_INLINE_BYTES="10")
    run = kit.go("dynamic", {"l": {"emit": list(range(20))}, "j": "count"})
    assert (run.state, run.output, bool(kit.row(run, "l").output_ref)) == ("done", 20, True)
