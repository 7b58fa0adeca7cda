"""The list of runs: filters, pages in both directions, hostile input."""

import re
from urllib.parse import urlencode

import pytest

from orchestrator.models import Run
from tests.dashboard.conftest import many
from tests.harness.factory import make


def subjects(client, query=""):
    html = client.get(f"/runs/{query}").content.decode()
    return re.findall(r'<a class="lead" href="/runs/[^"]+" title="([^"]*)"', html), html


def test_newest_first_and_pages_lead_there_and_back(viewer):
    many(120)
    first, html = subjects(viewer)
    assert first == [f"s-{n:03d}" for n in range(120, 70, -1)]
    assert "120 runs" in html
    older = re.search(r'rel="next" href="([^"]+)"', html)[1].replace("&amp;", "&")
    second, html = subjects(viewer, older)
    assert second == [f"s-{n:03d}" for n in range(70, 20, -1)]
    newer = re.search(r'rel="prev" href="([^"]+)"', html)[1].replace("&amp;", "&")
    back, html = subjects(viewer, newer)
    assert back == first
    assert 'rel="prev"' not in html, "there is nothing newer than the first page"
    older = re.search(r'rel="next" href="([^"]+)"', subjects(viewer, older)[1])[1].replace("&amp;", "&")
    last, html = subjects(viewer, older)
    assert last == [f"s-{n:03d}" for n in range(20, 0, -1)]
    assert 'rel="next"' not in html


def test_a_page_keeps_the_filters(viewer):
    many(60)
    _, html = subjects(viewer, "?state=done&workflow=video-upload")
    older = re.search(r'rel="next" href="([^"]+)"', html)[1]
    assert "state=done" in older
    assert "workflow=video-upload" in older


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?state=failed", ["bad"]),
        ("?state=failed,cancelled", ["bad", "off"]),
        ("?cause=cancelled", ["off"]),
        ("?overdue=true", ["late"]),
        ("?subject_id=ok", ["ok"]),
        ("?q=LAT", ["late"]),
        ("?label=tier:gold&state=done", ["ok"]),
        ("?label=tier:lead", []),
        ("?version=3&state=done", ["ok"]),
        ("?version=9", []),
        ("?workflow=other", []),
        ("?since=2999-01-01", []),
        ("?step=transcode&step_state=failed", ["bad"]),
    ],
)
def test_filters(viewer, query, found):
    make("done", subject="ok")
    make("failed", subject="bad")
    make("cancelled", subject="off")
    make("overdue", subject="late")
    shown, html = subjects(viewer, query)
    assert sorted(shown) == sorted(found)
    if not found:
        assert "No run matches" in html


@pytest.mark.parametrize(
    "query",
    [
        "?q=%00",
        "?subject_id=a%00b",
        "?state=lost",
        "?version=x",
        "?version=99999999999999999999",
        "?cursor=zz",
        "?cursor=a.%00",
        "?cursor=b.!!!",
        "?label=nocolon",
        "?since=yesterday",
        "?parent=1",
        "?limit=1000000",
        "?waiting_longer_than=-1",
        "?q=" + "x" * 600,
        "?q=%ff%fe",
        "?workflow=%ed%a0%80",
    ],
)
def test_what_cannot_be_read_gets_a_message_not_an_error(viewer, query):
    make("done")
    answer = viewer.get(f"/runs/{query}")
    assert answer.status_code == 200
    html = answer.content.decode()
    assert 'role="alert"' in html or "No run matches" in html


def test_names_of_others_are_text(viewer):
    evil = '<img src=x onerror="alert(1)">'
    make("retrying", subject=evil)
    html = viewer.get("/runs/?" + urlencode({"q": "<img"})).content.decode()
    assert evil not in html
    assert "&lt;img" in html
    assert evil not in viewer.get("/runs/?" + urlencode({"workflow": evil, "state": evil})).content.decode()
    assert evil not in viewer.get("/where/?" + urlencode({"q": evil})).content.decode()


def test_an_error_text_is_masked_and_escaped(viewer):
    run = make("failed")
    error = {"type": "E", "message": "password=hunter2 <b>bold</b>", "step": "transcode", "shard": "480p"}
    Run.objects.filter(pk=run.pk).update(error=error)
    html = viewer.get("/runs/").content.decode()
    assert "hunter2" not in html
    assert "<b>bold" not in html
