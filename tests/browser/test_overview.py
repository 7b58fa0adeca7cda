"""The overview's charts, counts of the navigation that tick, an incident taken on, a view that is kept."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import Page, expect

from dashboard.models import SavedView
from orchestrator.core.metric_names import RUN_DURATION_BUCKET
from orchestrator.models import Incident, RollupHour
from tests.browser.site import PHONE, Site, asset
from tests.harness.factory import make


def hours(count: int) -> None:
    """So many hours in which ten runs of a minute ended, one of them failed."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    for ago in range(count):
        for state, value in (("done", 9), ("failed", 1)):
            labels = {"workflow": "video-upload", "state": state, "le": "60.0"}
            RollupHour.objects.update_or_create(
                metric=RUN_DURATION_BUCKET, labels=labels, hour=now - timedelta(hours=ago), defaults={"value": value}
            )


def violations(page: Page) -> list[str]:
    page.evaluate(asset("axe.min.js"))
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]


def test_charts_are_drawn_and_the_table_says_the_same(site: Site) -> None:
    hours(24)
    page = site.visit("viewer", "/")
    expect(page.locator(".plot canvas")).to_have_count(3)
    table = page.locator("#charts details")
    expect(table).not_to_have_attribute("open", "")
    table.locator("summary").click()
    expect(table.locator("tbody tr")).to_have_count(24)
    plot = page.locator(".plot canvas").first.bounding_box()
    assert plot is not None
    page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + plot["height"] / 2)
    expect(page.locator("[data-series=done] b")).to_have_text("9")
    page.get_by_role("link", name="7 d").click()
    expect(page.locator("#charts tbody tr")).to_have_count(168)
    page.set_viewport_size(PHONE)
    page.wait_for_function("() => [...document.querySelectorAll('.plot canvas')].every(c => c.clientWidth < 390)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_javascript_the_table_is_there_and_no_empty_chart(site: Site) -> None:
    hours(24)
    page = site.visit("viewer", "/", java_script_enabled=False)
    expect(page.locator("#charts tbody tr").first).to_be_visible()
    expect(page.locator(".plot").first).to_be_hidden()


def test_counts_of_the_navigation_tick_with_the_page(site: Site) -> None:
    page = site.visit("viewer", "/runs/")
    page.evaluate("window.sameWindow = true")
    nav = page.get_by_role("navigation", name="Main")
    was = nav.locator("#n-side-overdue").text_content()
    make("overdue")
    expect(nav.locator("#n-side-overdue")).not_to_have_text(was or "")
    expect(nav.locator("#n-side-overdue")).to_be_visible()
    assert page.evaluate("window.sameWindow === true")


def test_support_takes_on_an_incident(site: Site) -> None:
    make("failed")
    page = site.visit("support", "/dead-letters/")
    page.locator(".inc").first.get_by_role("link", name="Open").click()
    page.get_by_text("Add a note…").click()
    assert violations(page) == []
    page.get_by_label("Owner").fill("media team")
    page.get_by_label("Note", exact=True).fill("the disk of BER-1 is full")
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_text("Noted.")).to_be_visible()
    expect(page.locator(".noted")).to_contain_text("media team")
    assert Incident.objects.get().note == "the disk of BER-1 is full"


def test_support_keeps_a_view_that_a_viewer_opens(site: Site) -> None:
    page = site.visit("support", "/runs/?state=failed")
    page.get_by_text("Save this view…").click()
    page.get_by_label("Name", exact=True).fill("Failed ones")
    assert violations(page) == []
    page.get_by_role("button", name="Save", exact=True).click()
    assert SavedView.objects.get().query == "state=failed"
    other = site.visit("viewer", "/runs/")
    other.get_by_role("link", name="Failed ones").click()
    expect(other.get_by_role("navigation", name="How many in each state").locator("[aria-current]")).to_contain_text(
        "Failed"
    )
    assert other.get_by_text("Delete this view").count() == 0
