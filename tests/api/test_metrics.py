"""``/metrics``: names of the contract, values of the record, counters that never go down."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from orchestrator import metrics
from orchestrator.core import metric_names as names
from orchestrator.engine import gauges, rollup
from orchestrator.models import Beat, Rollup, RollupDelta, Topic
from tests.harness import factory

VIDEO = {"workflow": "video-upload"}
#: Of CONTRACT 7; a counter's name is without ``_total`` in the parsed form.
CONTRACT = {
    "workflow_run_duration_seconds", "workflow_runs_overdue", "workflow_runs_missed_deadline", "workflow_runs_at_risk",
    "workflow_runs", "workflow_runs_failed", "workflow_runs_partial_undo", "workflow_steps_waiting_seconds",
    "workflow_step_attempts", "workflow_dead_letters", "workflow_queue_depth", "workflow_queue_oldest_seconds",
    "workflow_outbox_lag_seconds", "workflow_dispatcher_last_beat_seconds", "workflow_workers",
    "workflow_topic_running", "workflow_topic_limit", "workflow_duplicate_completions",
}  # fmt: skip


def scrape() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list(text_string_to_metric_families(metrics.render().decode()))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def observe(state: str, *seconds: float) -> None:
    for length in seconds:
        bucket = names.bucket_label(names.RUN_BUCKETS, length)
        rollup.add(names.RUN_DURATION_BUCKET, {**VIDEO, "state": state, "le": bucket})
        rollup.add(names.RUN_DURATION_SUM, {**VIDEO, "state": state}, length)


@pytest.mark.parametrize(
    ("seconds", "label"),
    [(-1, "0.1"), (0, "0.1"), (0.1, "0.1"), (0.11, "0.25"), (1, "1.0"), (86400, "86400.0"), (86401, "+Inf")],
)
def test_an_observation_falls_in_one_bucket(seconds: float, label: str) -> None:
    assert names.bucket_label(names.RUN_BUCKETS, seconds) == label


@pytest.mark.django_db
def test_all_names_of_the_contract_are_there() -> None:
    families = {family.name for family in text_string_to_metric_families(metrics.render().decode())}
    assert families >= CONTRACT
    assert families - CONTRACT == {"workflow_metrics_part_up"}


@pytest.mark.django_db
def test_gauges_count_the_record() -> None:
    for stage in factory.STAGES:
        if stage != "wide":
            factory.make(stage)
    Topic.objects.create(name="gpu", limit=3)
    Topic.objects.create(name="free")
    Beat.objects.create(name="dispatcher")
    found = scrape()
    assert value(found, "workflow_runs", state="failed", **VIDEO) == 2
    assert value(found, "workflow_runs", state="running", **VIDEO) == 6
    assert value(found, "workflow_runs", state="compensating", **VIDEO) == 1
    assert value(found, "workflow_runs_overdue", **VIDEO) == 1
    assert value(found, "workflow_runs_partial_undo", **VIDEO) == 1
    assert value(found, "workflow_dead_letters", **VIDEO) == 4
    assert value(found, "workflow_queue_depth", queue="media-light") == 1
    assert 49 < value(found, "workflow_queue_oldest_seconds", queue="media-light") < 120
    assert value(found, "workflow_queue_depth", queue="default") == 0
    assert value(found, "workflow_workers", queue="media-heavy") >= 1
    assert value(found, "workflow_topic_limit", topic="gpu") == 3
    assert value(found, "workflow_topic_running", topic="free") == 0
    assert ("workflow_topic_limit", frozenset({("topic", "free")})) not in found
    assert value(found, "workflow_dispatcher_last_beat_seconds") < 60
    assert value(found, "workflow_outbox_lag_seconds") == 0


@pytest.mark.django_db
def test_at_rest_a_published_workflow_shows_zeros() -> None:
    factory.definition()
    found = scrape()
    for name in ("overdue", "at_risk", "partial_undo"):
        assert value(found, f"workflow_runs_{name}", **VIDEO) == 0
    assert value(found, "workflow_runs_missed_deadline_total", **VIDEO) == 0
    assert value(found, "workflow_duplicate_completions_total") == 0
    assert value(found, "workflow_dispatcher_last_beat_seconds") == float("inf")


@pytest.mark.django_db
def test_buckets_are_cumulative_and_survive_folding() -> None:
    observe("done", 0.05, 0.3, 40, 200_000)
    before = scrape()
    bucket = "workflow_run_duration_seconds_bucket"
    done = {**VIDEO, "state": "done"}
    assert [value(before, bucket, le=le, **done) for le in ("0.1", "0.25", "0.5", "60.0", "86400.0", "+Inf")] == [
        1, 1, 2, 3, 3, 4,
    ]  # fmt: skip
    assert value(before, "workflow_run_duration_seconds_count", **done) == 4
    assert value(before, "workflow_run_duration_seconds_sum", **done) == pytest.approx(200_040.35)
    assert rollup.fold(3) == 3
    assert scrape() == before
    assert rollup.fold() == 5
    assert rollup.fold() == 0
    assert not RollupDelta.objects.exists()
    assert scrape() == before
    observe("done", 1.0)
    rollup.fold()
    assert value(scrape(), "workflow_run_duration_seconds_count", **done) == 5
    assert Rollup.objects.filter(metric=names.RUN_DURATION_SUM).count() == 1


@pytest.mark.django_db
def test_counters_stay_when_runs_are_pruned() -> None:
    run = factory.make("failed")
    observe("failed", 12)
    rollup.add(names.RUNS_FAILED, {**VIDEO, "cause": "error"})
    run.delete()
    found = scrape()
    assert value(found, "workflow_run_duration_seconds_count", state="failed", **VIDEO) == 1
    assert value(found, "workflow_runs_failed_total", cause="error", **VIDEO) == 1


@pytest.mark.django_db
def test_series_do_not_grow_with_runs() -> None:
    for n in range(3):
        factory.make("failed", subject=f"s{n}")
    before = set(scrape())
    for n in range(10):
        factory.make("failed", subject=f"t{n}")
    assert set(scrape()) == before


@pytest.mark.django_db
def test_a_part_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> dict[tuple[str, ...], float]:
        return {(): float(gauges._rows("SELECT pg_sleep(30)")[0][0])}

    monkeypatch.setattr(gauges, "GAUGES", (gauges.Gauge("workflow_runs", "", (), slow), *gauges.GAUGES[1:]))
    monkeypatch.setattr(metrics, "PART_SECONDS", 0.2)
    found = scrape()
    assert value(found, "workflow_metrics_part_up", part="workflow_runs") == 0
    assert value(found, "workflow_metrics_part_up", part="workflow_dead_letters") == 1
    assert not any(name == "workflow_runs" for name, _ in found)


@pytest.mark.django_db(transaction=True)
def test_the_page_is_open_unless_a_token_is_set(settings: Any) -> None:
    client = Client()
    page = client.get("/metrics")
    assert page.status_code == 200
    assert page["Content-Type"].startswith("text/plain; version=0.0.4")
    assert client.post("/metrics").status_code == 405
    settings.METRICS_TOKEN = "sesame"
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Basic sesame"}).status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer sesame"}).status_code == 200
