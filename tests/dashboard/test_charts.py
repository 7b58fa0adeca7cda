"""The charts: counted by the hour when the counters are folded, and drawn from there."""

import json
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.queries import charts
from orchestrator.core.metric_names import (
    RUN_BUCKETS,
    RUN_DURATION_BUCKET,
    RUNS_FAILED,
    STEPS_WAITING_BUCKET,
    bound_label,
)
from orchestrator.engine import rollup
from orchestrator.models import RollupHour

pytestmark = pytest.mark.django_db


def hour(ago=0):
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    return now - timedelta(hours=ago)


def ended(state, count, ago=0, le="60.0", workflow="video-upload"):
    labels = {"workflow": workflow, "state": state, "le": le}
    RollupHour.objects.create(metric=RUN_DURATION_BUCKET, labels=labels, hour=hour(ago), value=count)


def test_folding_keeps_what_is_charted_by_the_hour():
    for _ in range(3):
        rollup.add(RUN_DURATION_BUCKET, {"workflow": "a", "state": "done", "le": "60.0"})
    rollup.add(RUNS_FAILED, {"workflow": "a", "cause": "error"})
    rollup.fold()
    rollup.add(RUN_DURATION_BUCKET, {"workflow": "a", "state": "done", "le": "60.0"})
    rollup.fold()
    kept = RollupHour.objects.get()
    assert (kept.metric, kept.value) == (RUN_DURATION_BUCKET, 4)
    assert kept.hour == hour()


def test_the_hour_that_is_not_over_does_not_look_like_a_collapse():
    ended("done", 50, ago=1)
    ended("done", 3)
    assert charts.charts().data["done"][-2:] == [50, None]
    ended("failed", 60)
    charts.cache.clear()
    assert charts.charts().data["done"][-2:] == [50, 3]
    assert charts.charts().data["failed"][-1] == 60


def test_hours_go_after_five_weeks():
    ended("done", 1, ago=24 * 34)
    ended("done", 1, ago=24 * 36)
    rollup.fold()
    assert RollupHour.objects.count() == 1


def test_an_hour_of_runs_and_waits():
    ended("done", 8, ago=2, le="60.0")
    ended("done", 2, ago=2, le="300.0", workflow="other")
    ended("failed", 3, ago=2)
    wait = {"queue": "default", "le": "0.1"}
    RollupHour.objects.create(metric=STEPS_WAITING_BUCKET, labels=wait, hour=hour(2), value=10)
    found = charts.charts()
    assert len(found.hours) == 24
    one = found.hours[-3]
    assert one.ended == {"done": 10, "failed": 3, "cancelled": 0}
    assert 30 < one.run_p50 < 60 < one.run_p90 <= 300
    assert 0.05 < one.wait_p50 < one.wait_p90 <= 0.1
    assert found.hours[-1].run_p50 is None
    assert found.totals["done"] == 10


@pytest.mark.parametrize(
    ("counts", "share", "seconds"),
    [
        ({}, 0.5, None),
        ({"1.0": 10.0}, 0.5, 0.75),
        ({"0.1": 5.0, "60.0": 5.0}, 0.9, 54.0),
        ({"+Inf": 4.0}, 0.5, 86400.0),
        ({"7.0": 1.0}, 1.0, 7.0),
    ],
)
def test_quantiles_lie_within_their_bucket(counts, share, seconds):
    assert charts.quantile(counts, RUN_BUCKETS, share) == (seconds if seconds is None else pytest.approx(seconds))


def test_all_bounds_can_be_read():
    assert charts.quantile({bound_label(bound): 1.0 for bound in RUN_BUCKETS}, RUN_BUCKETS, 0.5) is not None


def test_failures_are_told_from_the_usual():
    assert charts.failed().usual is None
    for day in range(1, 6):
        ended("failed", 2, ago=24 * day + 3)
    ended("failed", 20, ago=2)
    charts.cache.clear()
    found = charts.failed()
    assert (found.today, found.usual) == (20, 2.0)
    assert found.is_unusual
    assert not charts.Failed(4, 2.0).is_unusual
    assert not charts.Failed(400, None).is_unusual


@pytest.mark.parametrize("hours", ["", "24", "168", "17", "x", "-1", "9" * 30])
def test_the_data_of_the_script_and_the_table_agree(viewer, hours):
    ended("done", 7, ago=3)
    html = viewer.get("/charts/", {"hours": hours}).content.decode()
    data = json.loads(re.search(r'<script id="charts-data" type="application/json">(.*?)</script>', html)[1])
    assert len(data["x"]) == len(data["done"]) == len(data["run_p90"]) == (168 if hours == "168" else 24)
    assert sum(data["done"]) == 7
    table = html.split("<tbody>")[1].split("</tbody>")[0]
    assert table.count("<tr>") == len(data["x"])
    assert '<td class="num">7</td>' in table


def test_the_region_that_asks_again_gets_the_charts_alone(viewer):
    region = viewer.get("/charts/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in region
    assert 'id="charts-data"' in region
    assert 'id="charts"' not in region
    assert 'id="charts"' in viewer.get("/").content.decode()


def test_the_charts_of_one_workflow(viewer):
    ended("done", 7, ago=3)
    ended("failed", 5, ago=3, workflow="other & more")
    wait = {"queue": "default", "le": "0.1"}
    RollupHour.objects.create(metric=STEPS_WAITING_BUCKET, labels=wait, hour=hour(3), value=10)
    one = charts.charts("24", "other & more")
    assert (one.totals["done"], one.totals["failed"], one.hours[-4].wait_p50 is None) == (0, 5, False)
    assert charts.charts("24").totals == {"done": 7, "failed": 5, "cancelled": 0}
    assert sum(charts.charts("24", "nope\x00").totals.values()) == 0
    html = viewer.get("/", {"workflow": "other & more", "hours": "72"}).content.decode()
    assert "?hours=72&amp;workflow=other%20%26%20more" in html, "the region asks again for the same workflow"
    assert '<option value="other &amp; more" selected>' in html
    assert re.search(r'href="\?(hours=168&amp;workflow|workflow)=other\+%26\+more(&amp;hours=168)?#charts"', html)
    assert "of runs that ended done, of other &amp; more" in html
