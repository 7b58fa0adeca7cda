"""Every page of the URL table, wide and narrow, light and dark: no errors, no sideways scrolling, open to everybody."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.urls import URLPattern, reverse
from django.utils import timezone
from playwright.sync_api import Page

from dashboard.shared_link import make_token
from dashboard.urls import urlpatterns
from orchestrator.core.actor import Actor
from orchestrator.core.bulk import BulkVerb
from orchestrator.engine import bulk
from orchestrator.models import BulkOperation, Run
from tests.browser.site import DESKTOP, PHONE, Site, asset
from tests.dashboard.conftest import many
from tests.harness.factory import make

Data = dict[str, Run]
#: Routes that are no pages: files, and forms that take a POST. The run of "run_id" cannot be retried: see STATES.
NO_PAGES = {"run-artifact", "logout", "dead-letter-act", "schedule-act", "pause-act", "run-retry"}
NO_PAGES |= {"runs-export", "dead-letters-export", "audit-export", "view-save", "view-delete", "incident-note"}
NO_PAGES |= {"step-act", "topic-limit", "run-history", "run-hold", "run-settle", "version-use"}
#: Values for the parts of an address that are not fixed. A new page with another part names it here.
PARTS: dict[str, Callable[[Data], Any]] = {
    "run_id": lambda data: data["mid_fan_out"].id,
    "name": lambda data: data["mid_fan_out"].workflow,
    "operation_id": lambda data: BulkOperation.objects.get().pk,
    "token": lambda data: make_token(data["mid_fan_out"].id, timezone.now() + timedelta(hours=1)),
}
#: Pages that answer only to a question.
QUESTIONS = {"bulk-preview": "?verb=cancel&state=running&workflow=video-upload"}
ROUTES = {
    pattern.name: sorted(pattern.pattern.regex.groupindex)
    for pattern in urlpatterns
    if isinstance(pattern, URLPattern) and pattern.name and pattern.name not in NO_PAGES
}
#: More than the table says: the same pages in other states.
STATES = {
    "run, failed": "/runs/{failed}/",
    "run, undo incomplete": "/runs/{partial}/",
    "run, undoing": "/runs/{compensating}/",
    "run, waits for a retry": "/runs/{retrying}/?step=transcode&shard=480p",
    "run, waits for approval": "/runs/{approving}/",
    "run, done, all steps": "/runs/{done}/?show=all",
    "run, not due": "/runs/{delayed}/",
    "run, late": "/runs/{overdue}/",
    "run, a step that is not there": "/runs/{done}/?step=nothing",
    "shards": "/runs/{wide}/?shards=transcode",
    "run, wide": "/runs/{wide}/",
    "retry asks": "/runs/{failed}/retry/",
    "retry is refused": "/runs/{mid_fan_out}/retry/",
    "cancel is refused": "/runs/{done}/cancel/",
    "force asks": "/runs/{compensating}/cancel/?force=1",
    "settle asks": "/runs/{partial}/settle/",
    "hold is refused": "/runs/{done}/hold/",
    "a step decided on": "/runs/{approving}/?step=approve",
    "run again": "/runs/new/?from={failed}",
    "a link that is not good": "/s/abc/",
    "where, by label": "/where/?q=acme",
    "runs, filtered": "/runs/?state=failed&cause=error&label=tier:gold",
    "runs, none": "/runs/?q=nothing-like-it",
    "runs, a wrong filter": "/runs/?version=x",
    "where, found": "/where/?q=late-one",
    "where, nearly": "/where/?q=late-o",
    "where, nothing": "/where/?q=nothing-like-it",
    "dead letters, all": "/dead-letters/?state=any",
    "audit, filtered": "/audit/?who=all&action=submit&since=24h",
    "audit, a wrong filter": "/audit/?since=never",
    "charts of a week": "/charts/?hours=168",
    "not found": "/nothing/here/",
}
#: A page may be this large, in bytes of HTML, and take this long in the best of three, in seconds.
MOST_BYTES, MOST_SECONDS = 1_000_000, 2.0


@pytest.fixture(scope="module")
def data(site: Site) -> Data:
    """A run in every stage, under the names of the stages."""
    stages = ["delayed", "queued", "mid_fan_out", "retrying", "approving", "done", "compensating", "failed", "partial"]
    made = {stage: make(stage, subject=f"{stage}-{'long-subject-' * 6}{stage}") for stage in stages}
    made |= {"cancelled": make("cancelled"), "overdue": make("overdue", subject="late-one")}
    ids = [str(made[stage].id) for stage in ("queued", "delayed", "retrying")]
    bulk.start(BulkVerb.CANCEL, Actor("olga", "operator"), "wrong files", filters=None, ids=ids)
    return made | {"wide": make("wide", subject="wide-one")}


@pytest.fixture(scope="module")
def axe() -> str:
    return asset("axe.min.js")


def looks_right(site: Site, page: Page, axe: str, path: str, name: str) -> None:
    """Opens the page and checks it in light, then its colours in dark."""
    answer = page.goto(path)
    assert answer is not None and answer.status in (200, 403, 404, 409), f"{path}: {answer and answer.status}"
    assert answer.status < 400 or "refused" in name or "not " in name, f"{path}: {answer.status}"
    is_sound(page, axe, path)


def is_sound(page: Page, axe: str, path: str) -> None:
    """Checks the page that is open."""
    wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room, f"{path} scrolls sideways: {wide} px in {room}; {_too_wide(page)}"
    page.evaluate(axe)  # as text: the CSP would refuse a script of another place
    assert _violations(page, "{resultTypes: ['violations']}") == []
    page.emulate_media(color_scheme="dark")
    assert _violations(page, "{resultTypes: ['violations'], runOnly: ['color-contrast']}") == []
    page.emulate_media(color_scheme="light")


def _violations(page: Page, options: str) -> list[str]:
    found = page.evaluate(f"async () => (await axe.run(document, {options})).violations")
    return [
        f"{v['id']} ({v['help']}): {node['html'][:200]} {node['failureSummary']}"
        for v in found
        for node in v["nodes"][:3]
    ]


def _too_wide(page: Page) -> Any:
    return page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1)
        .slice(0, 5).map(e => e.outerHTML.slice(0, 120))"""
    )


@pytest.mark.parametrize("name", [*ROUTES, *STATES, "not allowed"])
def test_it_looks_right_wide_and_narrow_light_and_dark(site: Site, data: Data, axe: str, name: str) -> None:
    if name in STATES:
        path = re.sub(r"{(\w+)}", lambda found: str(data[found[1]].id), STATES[name])
    elif name == "not allowed":
        path = "/upload/"
    else:
        unknown = set(ROUTES[name]) - set(PARTS)
        assert not unknown, f"say in PARTS what {unknown} stands for"
        path = reverse(name, kwargs={part: PARTS[part](data) for part in ROUTES[name]})
        path += QUESTIONS.get(name, "")
    role = "viewer" if name == "not allowed" else None if name == "login" else "admin"
    page = site.visit(role, viewport=DESKTOP, color_scheme="light")
    if page.request.get(path).status == 405:
        return  # takes a POST only: no page
    looks_right(site, page, axe, path, name)
    page.set_viewport_size(PHONE)
    looks_right(site, page, axe, path, name)


def test_the_page_that_says_it_took_too_long_looks_right_too(site: Site, axe: str) -> None:
    page = site.visit("admin", viewport=DESKTOP, color_scheme="light")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE workflow_runs IN ACCESS EXCLUSIVE MODE")  # what the list asks has to wait
        answer = page.goto("/runs/")
    assert answer is not None and answer.status == 503
    assert "took too long" in page.locator("h1").inner_text()
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        is_sound(page, axe, "/runs/ when it takes too long")


def test_what_opens_on_a_page_is_open_to_everybody_too(site: Site, data: Data, axe: str) -> None:
    page = site.visit("admin", "/dead-letters/")
    page.evaluate(axe)
    page.locator("main summary").first.click()
    assert _violations(page, "{resultTypes: ['violations']}") == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert _violations(page, "{resultTypes: ['violations']}") == []
    page.goto("/runs/?version=3")
    page.evaluate(axe)
    assert page.locator("details.more[open]").count() == 1
    assert _violations(page, "{resultTypes: ['violations']}") == []


def test_large_pages_open_quickly_and_stay_small(site: Site, data: Data) -> None:
    many(2500)
    page = site.visit("viewer", "/runs/?state=done")
    seen = [page.locator("tr[data-row]").first.inner_text()]
    paths = ["/", "/runs/"]
    for _ in range(3):
        page.get_by_role("link", name=re.compile("Older|Next")).last.click()
        page.wait_for_function("was => document.querySelector('tr[data-row]').innerText !== was", arg=seen[-1])
        seen.append(page.locator("tr[data-row]").first.inner_text())
        paths.append(page.url)
    wide = data["wide"].id
    paths += [f"/runs/{wide}/", f"/runs/{wide}/?show=all", f"/runs/{wide}/?shards=transcode"]
    for path in paths:
        took = []
        for _ in range(3):
            begun = time.monotonic()
            body = page.request.get(path).body()
            took.append(time.monotonic() - begun)
        assert len(body) < MOST_BYTES, f"{path} has {len(body):,} bytes"
        assert min(took) < MOST_SECONDS, f"{path} takes {min(took):.1f} s"


def test_shards_are_paged_and_filtered(site: Site, data: Data) -> None:
    page = site.visit("viewer", f"/runs/{data['wide'].id}/")
    page.get_by_role("link", name=re.compile("All 5,000 shards")).first.click()
    card = page.locator(".o-list")
    assert "5,000 shards" in card.inner_text()
    assert 0 < card.locator("tr[data-row]").count() <= 200
