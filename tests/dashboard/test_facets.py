"""Counts beside the filters of the runs page."""

import re

import pytest

from dashboard import nav
from dashboard.queries import facets as module
from dashboard.queries.facets import choices, facets
from orchestrator.engine.find import RunFilters
from tests.dashboard.conftest import many
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


def counts(filters=None):
    return {(one.word or one.state): one.count for one in facets(filters or RunFilters())}


def test_each_state_is_counted_within_the_other_filters():
    for stage in ("queued", "overdue", "compensating", "done", "failed", "partial", "cancelled"):
        make(stage, subject=stage)
    assert counts() == {
        "All": 7, "Live": 3, "running": 2, "compensating": 1, "done": 1, "failed": 2, "cancelled": 1, "overdue": 1,
        "partial": 1,
    }  # fmt: skip
    assert counts(RunFilters(state=("done",))) == counts(), "the state itself does not narrow the counts of states"
    assert counts(RunFilters(subject_id="overdue"))["All"] == 1
    assert set(counts(RunFilters(label=(("no", "such"),))).values()) == {0}


def test_the_links_keep_the_other_filters_and_one_is_current(viewer):
    make("failed", subject="a")
    html = viewer.get("/runs/?state=failed&subject_id=a&cursor=").content.decode()
    bar = html.split('aria-label="How many in each state"')[1].split("</nav>")[0]
    links = re.findall(r'href="([^"]*)"( aria-current="true")?', bar)
    assert ("?state=done&amp;subject_id=a", "") in links
    assert ("?subject_id=a", "") in links
    assert [link for link, current in links if current] == ["?state=failed&amp;subject_id=a"]


def test_counting_stops_at_the_bound(monkeypatch):
    monkeypatch.setattr(module, "BOUND", 5)
    monkeypatch.setattr(nav, "BOUND", 5)
    many(8)
    assert counts()["done"] == 6


def test_what_takes_too_long_is_left_out(viewer, monkeypatch):
    def give_up(*_):
        raise module.TooBroad("too long")

    monkeypatch.setattr(module, "patiently", give_up)
    make("failed")
    html = viewer.get("/runs/").content.decode()
    bar = html.split('aria-label="How many in each state"')[1].split("</nav>")[0]
    assert "Failed" in bar
    assert 'class="n"' not in bar


def chosen(name, **filters):
    offered = choices(RunFilters(**filters), ["other", "video-upload"])
    return {one.value: one.count for one in offered[name]}


def test_workflow_version_and_cause_are_counted_beside_the_other_filters():
    for stage in ("queued", "failed", "partial"):
        make(stage, subject=stage)
    assert chosen("workflow") == {"other": 0, "video-upload": 3}
    assert chosen("workflow", workflow="video-upload") == chosen("workflow"), "the workflow does not narrow its own"
    assert chosen("workflow", state=("failed",)) == {"other": 0, "video-upload": 2}
    assert chosen("version") == {}
    assert chosen("version", workflow="video-upload") == {"3": 3}
    assert (chosen("cause")["error"], chosen("cause")["deadline"]) == (2, 0)
    assert chosen("cause", subject_id="partial")["error"] == 1
    assert set(chosen("workflow", q="part").values()) == {None}, "text is dear, so nothing is counted beside it"


def test_the_lists_of_the_form_show_the_counts_and_keep_what_the_address_says(viewer):
    make("failed", subject="a")
    html = viewer.get("/runs/?workflow=video-upload&cause=error").content.decode()
    assert '<option value="video-upload" selected>video-upload (1)</option>' in html
    assert '<option value="error" selected>error (1)</option>' in html
    assert '<option value="3">3 (1)</option>' in html
    html = viewer.get("/runs/?workflow=gone").content.decode()
    assert '<option value="gone" selected>gone</option>' in html
    assert 'name="version" inputmode="numeric"' in html


def test_choices_are_counted_up_to_the_bound_and_the_first_ones_only(monkeypatch):
    monkeypatch.setattr(module, "BOUND", 5)
    monkeypatch.setattr(module, "COUNTED", 2)
    many(8)
    offered = choices(RunFilters(), ["a", "video-upload", "z"])["workflow"]
    assert [(one.value, one.count) for one in offered] == [("a", 0), ("video-upload", 6), ("z", None)]
