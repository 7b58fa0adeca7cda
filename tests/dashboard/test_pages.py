"""What holds for every page: it answers, quickly, strictly, and the same as a page and as a region."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.models import AuditRecord
from tests.dashboard.conftest import many
from tests.harness.factory import STAGES, make

PAGES = {
    "/": 45,
    "/runs/": 25,
    "/runs/?state=failed&label=tier:gold": 25,
    "/overdue/": 40,
    "/dead-letters/": 20,
    "/where/": 12,
    "/where/?q=vid-8812": 40,
    "/workflows/": 15,
    "/workflows/video-upload/": 20,
    "/queues/": 16,
    "/health/": 16,
    "/audit/": 16,
    "/audit/?who=all": 16,
    "/audit/handover/": 30,
    "/dead-letters/?state=any": 20,
    "/charts/": 8,
}
SMALL = [stage for stage in STAGES if stage != "wide"]


@pytest.mark.parametrize("page", PAGES)
def test_it_answers_on_an_empty_record(viewer, page):
    assert viewer.get(page).status_code == (404 if "video-upload" in page else 200)


@pytest.mark.parametrize("page", PAGES)
def test_it_answers_with_runs_in_every_stage(viewer, page):
    for stage in SMALL:
        make(stage)
    answer = viewer.get(page)
    assert answer.status_code == 200
    html = answer.content.decode()
    assert "<h1" in html
    assert "None" not in re.sub(r"<[^>]*>", " ", html.split("<main")[1].split("</main>")[0]).split()


@pytest.mark.parametrize("page", PAGES)
def test_it_has_nothing_inline_and_a_strict_policy(viewer, page):
    for stage in SMALL:
        make(stage)
    answer = viewer.get(page)
    html = answer.content.decode()
    assert not re.search(r"<[^>]+\sstyle\s*=", html)
    assert not re.search(r"<[^>]+\son\w+\s*=", html)
    assert not re.search(r"<script(?![^>]*\ssrc=)(?![^>]*type=.application/json)", html)
    assert "javascript:" not in html
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("page", PAGES)
def test_more_runs_cost_no_more_queries(viewer, page):
    counts: list[int] = []
    many(60)  # more than a page either way, so that both are counted alike
    for rounds in (1, 2):
        for stage in SMALL * rounds:
            make(stage)
        viewer.get(page)
        with CaptureQueriesContext(connection) as asked:
            viewer.get(page)
        counts.append(len(asked))
    assert counts[1] <= counts[0] + 1, f"{counts}"
    assert counts[1] <= PAGES[page], f"{counts}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in ("/where/", "/workflows/video-upload/", "/charts/")]
)
def test_the_region_is_the_same_as_in_the_page(viewer, page):
    make("compensating")
    whole = viewer.get(page).content.decode()
    region = viewer.get(page, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in region
    titles = re.findall(r"<h2>(.*?)</h2>", region)
    assert titles == re.findall(r"<h2>(.*?)</h2>", whole.split('id="charts"')[0])


def test_a_region_that_is_up_to_date_is_answered_304(viewer, monkeypatch):
    monkeypatch.setattr("dashboard.queries.version.time.time", lambda: 1_000_000)
    make("mid_fan_out")
    tag = viewer.get("/runs/")["HX-PTag"]
    asked = {"HX-Request": "true", "HX-PTag": tag}
    same = viewer.get("/runs/", headers=asked)
    assert (same.status_code, same.content) == (304, b"")
    assert viewer.get("/runs/?state=failed", headers=asked).status_code == 200, "another address, another answer"
    AuditRecord.objects.create(action="cancel", actor="mara")
    asked["HX-PTag"] = same["HX-PTag"]  # as the window does
    assert viewer.get("/runs/", headers=asked).status_code == 200


def test_a_window_is_never_answered_304(viewer):
    tag = viewer.get("/runs/")["HX-PTag"]
    assert viewer.get("/runs/", headers={"HX-PTag": tag}).status_code == 200


def test_the_navigation_counts_what_wants_attention(viewer):
    make("overdue")
    make("failed")
    html = viewer.get("/health/").content.decode()
    nav = html.split('aria-label="Main"')[1].split("</nav>")[0]
    assert '<span class="n hot" id="n-side-overdue">1</span>' in nav
    assert '<span class="n bad" id="n-side-dead">1</span>' in nav


def test_the_counts_of_the_navigation_come_with_the_region(viewer):
    make("overdue")
    region = viewer.get("/runs/", headers={"HX-Request": "true"}).content.decode()
    for place in ("side", "tabs"):
        assert f'<span class="n hot" id="n-{place}-overdue" hx-swap-oob="true">1</span>' in region
        assert f'<span class="n " id="n-{place}-dead" hx-swap-oob="true" hidden>0</span>' in region
    whole = viewer.get("/runs/").content.decode()
    ids = set(re.findall(r'id="(n-(?:side|tabs)-\w+)"', region))
    assert ids == set(re.findall(r'id="(n-(?:side|tabs)-\w+)"', whole)), "a count without its place would be lost"


def test_the_theme_of_the_cookie_is_in_the_markup_and_nothing_else_is(viewer):
    viewer.cookies["theme"] = "dark"
    assert '<html lang="en" data-theme="dark">' in viewer.get("/").content.decode()
    viewer.cookies["theme"] = '"><script>'
    assert '<html lang="en">' in viewer.get("/").content.decode()


def test_not_found_is_a_page_that_helps(viewer):
    answer = viewer.get("/nope/")
    assert answer.status_code == 404
    assert "Search by subject" in answer.content.decode()


@pytest.mark.django_db
def test_a_broken_page_says_that_runs_go_on(rf, settings):
    from django.views.defaults import server_error

    answer = server_error(rf.get("/"))
    assert answer.status_code == 500
    assert "Your runs go on" in answer.content.decode()
