"""Every state of a run is explained in sentences that are short, exact and safe to show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from orchestrator.core.states import RunState, StepState, StopReason, WaitingFor
from orchestrator.engine.estimate import MIN_SAMPLE, at_risk, estimate, estimates, usual_lengths
from orchestrator.engine.explain import Where, where
from orchestrator.engine.explain_words import clock, listed, sentences, times
from orchestrator.models import AuditRecord, Pause, Run, Step, Topic
from tests.harness import factory
from tests.harness.factory import Build, lease, make, step_spec, video_spec, workflow_spec

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def told(stage: str, **run: Any) -> Where:
    return where(make(stage, **run))


def test_a_retry_says_what_failed_how_often_why_and_when_it_goes_on() -> None:
    run = make("retrying")
    due = Step.objects.get(run=run, waiting_for="retry").ready_at
    assert due is not None
    found = where(run, due - timedelta(seconds=42))
    assert found.lead == "Running transcode, 2 of 3 shards done."
    when = clock(due, due)
    assert found.sentence == (
        "Running transcode, 2 of 3 shards done. 480p failed twice (OSError: ffmpeg exited with 137: out of memory at "
        f"segment 12) and tries again at {when}, in 42 s."
    )
    otherwise = "If 480p fails 2 more times, the run undoes 2 steps and ends failed."
    assert found.next == f"Then thumbnail and 2 more steps. {otherwise}"
    assert found.due == due


def test_a_queued_step_says_that_no_worker_serves_its_queue() -> None:
    assert "probe has been queued for 50 s; no worker serves the queue media-light." in told("queued").sentence


def test_a_queued_step_counts_live_workers_only() -> None:
    lease("a", ["media-light", "default"])
    lease("b", ["media-light"], alive=False)
    assert "1 worker serves the queue media-light" in told("queued").sentence


def test_a_pause_is_named_with_its_reason_and_end() -> None:
    until = timezone.now() + timedelta(hours=1)
    Pause.objects.create(kind="queue", name="media-light", reason="disk is full", actor="mara", until=until)
    assert "the queue media-light is paused by mara until" in told("queued").sentence
    assert "(disk is full)" in told("queued").sentence


def test_a_running_shard_shows_its_progress_note() -> None:
    assert "720p has been running for 4 m 50 s, at 40%: segment 12 of 30." in told("mid_fan_out").sentence


def test_a_delayed_run_says_when_it_starts_and_that_its_clock_stands() -> None:
    found = told("delayed")
    assert found.sentence.startswith("Delayed: it starts at")
    assert "Its deadline of 2 h counts from then." in found.next


def test_an_approval_says_by_whom_and_what_happens_without() -> None:
    found = told("approving")
    assert "approve has waited 6 m 20 s for approval by editors; without an answer by" in found.sentence
    assert found.sentence.endswith("the run misses its deadline."), "which comes before the approval's own time is over"
    assert found.next == "Then notify."
    later = told("approving", deadline_at=timezone.now() + timedelta(days=9))
    assert later.sentence.endswith("the step fails.")


def test_an_overdue_run_says_since_when() -> None:
    assert "Its deadline passed at" in told("overdue").sentence
    assert "It takes longer than it should." in told("overdue").reply


def test_done_says_how_long_it_took() -> None:
    found = told("done")
    assert found.sentence.startswith("Done in 9 m 20 s.")
    assert found.next == "That was 1 h 50 m before its deadline."


def test_failed_names_the_shard_the_attempts_and_the_error() -> None:
    found = told("failed")
    assert found.sentence == (
        "Failed after 9 m 30 s. 480p of transcode failed after 4 attempts (OSError: ffmpeg exited with 137: out of "
        "memory at segment 12). What was done is undone (5 undos)."
    )


def test_an_incomplete_undo_is_named() -> None:
    failed = "1 of 5 undos failed: delete_rendition of 720p (PermissionError: bucket is sealed);"
    assert failed in told("partial").sentence


def test_undoing_says_how_far_it_is_why_and_how_it_ends() -> None:
    found = told("compensating")
    assert found.sentence.startswith("Undoing, 2 of 5 undos finished. delete_rendition of 1080p has been running for")
    assert "480p of transcode failed after 4 attempts" in found.next
    assert found.next.endswith("The run then ends failed.")


def test_cancelled_says_by_whom_and_why() -> None:
    found = told("cancelled")
    assert found.sentence.startswith("Cancelled by mara.lindt at ")
    assert "(customer withdrew the upload). It stood at transcode." in found.sentence


def test_a_deadline_names_the_step_that_was_under_way_and_for_how_long() -> None:
    build = Build()
    build.done("probe", ago=600, secs=4)
    build.row("captions", StepState.CANCELLED, cause="deadline", attempt=1, started_at=build.at(400),
              first_started_at=build.at(400), finished_at=build.at(100))  # fmt: skip
    build.run.stop, build.run.cause = StopReason.DEADLINE, "deadline"
    build.end(RunState.FAILED)
    found = where(build.save()).sentence
    assert "The deadline of 2 h passed at" in found
    assert "while captions had been under way for 5 m." in found


def test_a_run_that_stops_but_still_runs_says_so() -> None:
    build = Build()
    build.done("probe", ago=600, secs=4)
    build.running("captions", ago=60)
    build.run.stop, build.run.cause = StopReason.CANCEL, "cancelled"
    build.audit("cancel", actor="mara", role="operator", reason="wrong file")
    found = where(build.save())
    assert found.sentence.startswith("Stopping: 1 attempt still under way. Cancelled by mara at")
    assert found.reply == "This is being cancelled."


def test_a_held_run_names_the_choice() -> None:
    build = Build()
    row = build.row("probe", StepState.FAILED, cause="error", attempt=4, error=factory.ERROR, started_at=build.at(90))
    build.failed_attempts(row, 1, ago=90)
    build.run.stop, build.run.cause, build.run.state = StopReason.FAILURE, "error", RunState.COMPENSATING
    build.run.hold_until = build.at(-1200)
    found = where(build.save())
    assert found.sentence.startswith("Stopped; an operator decides until")
    assert "Retry goes on without an undo" in found.next


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WaitingFor.TIMER, "cool waits until"),
        (WaitingFor.LOCK, "cool waits for the lock video:1, which is free"),
        (WaitingFor.TOPIC, "cool waits for a slot of the topic video:1; 0 of 4 in use"),
        (WaitingFor.CHILDREN, "cool waits for its child runs"),
    ],
)
def test_every_wait_has_its_reason(kind: str, words: str) -> None:
    Topic.objects.create(name="video:1", limit=4)
    build = Build(workflow_spec("small", 1, [step_spec("cool", [])]))
    build.row("cool", StepState.WAITING, waiting_for=kind, waiting_name="video:1", ready_at=build.at(-60))
    assert words in where(build.save()).sentence


def test_a_lock_names_its_holder() -> None:
    spec = workflow_spec("small", 1, [step_spec("cool", [])])
    holder = Build(spec, subject="other")
    holder.running("cool", ago=5, lock_name="video:1")
    holder.save()
    build = Build(spec)
    build.row("cool", StepState.WAITING, waiting_for=WaitingFor.LOCK, waiting_name="video:1")
    assert "held by small other, step cool." in where(build.save()).sentence


@pytest.mark.parametrize("stage", [s for s in factory.STAGES if s != "wide"])
def test_the_reply_names_nothing_internal(stage: str) -> None:
    reply = told(stage).reply
    inside = ["transcode", "probe", "captions", "thumbnail", "approve", "notify", "OSError", "ffmpeg", "media-", "mara"]
    assert reply
    assert not [word for word in inside if word in reply]


def test_the_reply_uses_the_phrases_of_the_definition() -> None:
    assert told("retrying").reply == "Converting your video. Step 3 of 6."
    assert told("queued").reply == "Checking your video. Step 1 of 6."


@pytest.mark.parametrize("stage", factory.STAGES)
def test_sentences_are_well_formed_and_few_queries(stage: str, django_assert_max_num_queries: Any) -> None:
    run = make("wide", total=300) if stage == "wide" else make(stage)
    with django_assert_max_num_queries(10):
        found = where(run)
    for text in (found.sentence, found.next, found.reply):
        assert not text or text[-1] in ".?!"
        assert "None" not in text
        assert "  " not in text
        assert ".." not in text


def test_hostile_errors_are_masked_and_short() -> None:
    error = {"type": "E", "message": "<script>//u:s3cr3t-X@h/\n" + "x" * 50_000}
    build = Build()
    row = build.row("probe", StepState.WAITING, waiting_for=WaitingFor.RETRY, ready_at=build.at(-5), attempt=1)
    build.failed_attempts(row, 1, ago=20, secs=1, error=error)
    found = where(build.save()).sentence
    assert "s3cr3t" not in found
    assert "\n" not in found
    assert len(found) < 400


def test_there_is_no_estimate_without_history() -> None:
    assert estimate(make("retrying")) is None


def history(count: int, secs: float) -> None:
    for n in range(count):
        build = Build(subject=f"old-{n}", ago=90_000)
        build.done("probe", ago=90_000, secs=4)
        build.done("transcode", "1080p", ago=89_990, secs=secs)
        build.end(RunState.DONE, ago=90_000 - secs - 100 - n)
        build.save()


def test_the_estimate_counts_from_reaching_the_current_step() -> None:
    history(20, 900)
    run = make("retrying")
    found = estimate(run)
    assert found is not None
    assert found.sample == 20
    assert found.p50 <= found.p90
    # Such runs end about 1000 s after reaching transcode, which this one did 590 s ago.
    assert timedelta(seconds=380) < found.p50 - timezone.now() < timedelta(seconds=440)
    assert found.usual == pytest.approx(1009, abs=15)
    assert not at_risk(run, found)
    assert usual_lengths("video-upload", 3)["transcode"] == pytest.approx(900)


def test_a_run_is_at_risk_when_one_in_ten_such_runs_would_miss_its_deadline() -> None:
    history(MIN_SAMPLE, 900)
    run = make("retrying", deadline_at=timezone.now() + timedelta(seconds=300))
    assert at_risk(run, estimate(run))
    late = make("retrying", deadline_at=timezone.now() - timedelta(seconds=1))
    assert not at_risk(late, estimate(late))


def test_estimates_of_a_page_take_no_query_for_each_run(django_assert_max_num_queries: Any) -> None:
    history(MIN_SAMPLE, 900)
    runs = [make("retrying", subject=f"s{n}") for n in range(12)]
    with django_assert_max_num_queries(3):
        assert all(estimates(runs).values())


def test_words() -> None:
    assert [times(n) for n in (1, 2, 3)] == ["once", "twice", "3 times"]
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert sentences("a", "", "b.", " ") == "a. b."


def test_who_cancelled_is_a_person_even_after_engine_records() -> None:
    run = make("cancelled")
    AuditRecord.objects.create(run=run, action="cancel", actor="engine")
    assert "Cancelled by mara.lindt" in where(Run.objects.get(pk=run.pk)).sentence


def test_the_place_of_a_run_that_undoes_is_a_step_not_a_compensation() -> None:
    run = make("cancelled", current_step="purge_cdn")
    assert "It stood at transcode." in where(run).sentence


def test_a_definition_of_one_step_without_say() -> None:
    build = Build(workflow_spec("small", 1, [step_spec("only", [])]))
    build.running("only", ago=3)
    found = where(build.save())
    assert found.next.startswith("Then the run is done.")
    assert found.reply == "This is in progress."
    assert video_spec()["steps"][0]["say"]


def test_a_run_longer_than_all_before_it_has_no_estimate() -> None:
    history(MIN_SAMPLE, 900)
    assert estimate(make("overdue")) is None


def test_rows_newer_than_the_run_do_not_confuse_it() -> None:
    run = make("compensating")
    run.state = RunState.RUNNING  # read just before it began to undo
    assert where(run).sentence


def test_a_forced_cancel_names_who_and_why_too() -> None:
    run = make("cancelled")
    AuditRecord.objects.filter(run=run, action="cancel").delete()
    AuditRecord.objects.create(run=run, action="force", actor="mara", role="operator", reason="it hangs")
    assert "Cancelled by mara at" in where(run).sentence
    assert "it hangs" in where(run).sentence
