"""The pages by keyboard alone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import PHONE, Site
from tests.harness.factory import make


@pytest.fixture(scope="module", autouse=True)
def _rows(site: Site) -> None:
    """Three runs; the newest is listed first."""
    for number in (1, 2, 3):
        make("done", subject=f"row-{number}", ago=1000.0 - number)


def focus_is_visible(page: Page) -> bool:
    """Whether what has the focus shows it: an outline of at least 2 px, or a ring."""
    return bool(
        page.evaluate(
            """() => { const it = document.activeElement, box = it.querySelector(":scope > g > .box");
            if (box) return parseFloat(getComputedStyle(box).strokeWidth) >= 2;
            const s = getComputedStyle(it), line = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
            return it !== document.body && (line || s.boxShadow !== "none"); }"""
        )
    )


def test_a_slash_focuses_the_search(site: Site) -> None:
    page = site.visit("viewer", "/")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Subject or run id")
    expect(search).to_be_focused()
    expect(search).to_have_value("")
    page.keyboard.type("row-2/x?")  # in a field they are letters
    expect(search).to_have_value("row-2/x?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    search.fill("row-2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2, name=re.compile("row-2"))).to_be_visible()


def test_rows_are_walked_and_opened(site: Site) -> None:
    page = site.visit("viewer", "/runs/")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(3)
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        expect(rows.nth(at)).to_be_focused()
        assert focus_is_visible(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("row-2")


def test_the_row_in_focus_stays_so_when_the_list_is_drawn_again(site: Site) -> None:
    page = site.visit("viewer", "/runs/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tr[data-row]").nth(1)).to_be_focused()
    make("mid_fan_out", subject="row-new", ago=1.0)
    expect(page.get_by_role("link", name="row-new")).to_be_visible()
    row = page.locator("tr[data-row]:focus")
    expect(row).to_have_count(1)


def test_a_question_mark_lists_the_keys_and_escape_closes(site: Site) -> None:
    page = site.visit("viewer", "/")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_be_visible()
    expect(keys).to_contain_text("Next and previous row")
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()


@pytest.mark.parametrize(("key", "path"), [("r", "/runs/"), ("d", "/dead-letters/"), ("w", "/where/"), ("o", "/")])
def test_g_and_a_letter_go_there(site: Site, key: str, path: str) -> None:
    page = site.visit("viewer", "/queues/")
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page).to_have_url(site.url + path)


def test_tab_begins_with_a_link_past_the_navigation_and_always_shows_where_it_is(site: Site) -> None:
    run = make("failed", subject="tabbed")
    page = site.visit("operator", f"/runs/{run.id}/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        assert focus_is_visible(page), page.evaluate("document.activeElement.outerHTML")[:300]
        seen.append(page.evaluate("document.activeElement.textContent").strip())
    assert "Retry…" in seen


def test_a_question_opens_and_closes_by_keyboard(site: Site) -> None:
    make("failed", subject="asked")
    page = site.visit("operator", "/dead-letters/")
    summary = page.locator("main summary").first
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details.confirm[open]")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.locator("details[open] textarea")).to_be_focused()
    page.keyboard.type("jjk/?")  # a reason may have any letters
    expect(page.locator("details[open] textarea")).to_have_value("jjk/?")
    page.keyboard.press("Escape")
    expect(page.locator("details.confirm[open]")).to_have_count(0)
    expect(summary).to_be_focused()


def test_the_theme_is_kept_from_page_to_page(site: Site) -> None:
    page = site.visit("viewer", "/", color_scheme="light")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/runs/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_phone_has_the_sections_and_the_search(site: Site) -> None:
    page = site.visit("viewer", "/", viewport=PHONE, has_touch=True)
    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Runs").tap()
    expect(page).to_have_url(f"{site.url}/runs/")
    page.get_by_role("link", name="Search").tap()
    expect(page).to_have_url(f"{site.url}/where/")
