"""Cancelling and retrying from the page, with JavaScript and without."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.harness.invariants import check_invariants


@pytest.fixture(scope="module", autouse=True)
def _crew(site: Site) -> Iterator[None]:
    """Workers; at the end the record must agree with itself."""
    site.crew()
    yield
    check_invariants(at_rest=False)


def at_work(site: Site, subject: str) -> UUID:
    """A run that has done two steps of four and works on the third until it is told to stop."""
    run_id = site.submit("saga", subject, {"c": f"coop_hold:{subject}"})
    site.called("c", run_id)
    return run_id


def ask_to_cancel(page: Page, run_id: UUID) -> None:
    """From the page of the run to the page that asks."""
    page.goto(f"/runs/{run_id}/")
    page.get_by_role("link", name="Cancel run…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel this run?")


def shows_the_undo(page: Page) -> None:
    expect(page.locator(".head .badge").first).to_have_text("Cancelled")
    undo = page.get_by_role("region", name="Compensations")
    expect(undo.locator("li .v")).to_have_text(["done"] * 5, ignore_case=True)
    expect(undo).to_contain_text("undoes b")
    expect(page.get_by_role("region", name="Audit trail")).to_contain_text("customer withdrew")


def check_record(site: Site, run_id: UUID) -> None:
    run = site.run(run_id)
    assert (run.state, run.cause, run.compensation) == ("cancelled", "cancelled", "done")
    (act,) = site.acts(run_id, "cancel")
    assert (act.actor, act.role, act.reason) == ("operator", "operator", "customer withdrew")
    assert site.ledger.order(run_id, "undone")[:3] == ["undo:c", "undo:b", "undo:a"]


def test_a_run_is_cancelled_and_the_page_shows_its_undo(site: Site) -> None:
    run_id = at_work(site, "cancelled-live")
    page = site.visit("operator")
    ask_to_cancel(page, run_id)
    stale = site.window(page.context, page.url)
    expect(page.locator("h2:has-text('Will be undone, in this order') + ul li")).to_have_count(5)
    expect(page.locator("h2:has-text('Is running now') + ul li")).to_have_text(["c"])
    button = page.get_by_role("button", name="Cancel run and undo 3 steps")
    button.click()
    assert page.get_by_label("Reason").evaluate("field => field.validity.valueMissing")
    assert site.run(run_id).cancel_requested_at is None
    page.get_by_label("Reason").fill("customer withdrew")
    button.click()
    expect(page).to_have_url(f"{site.url}/runs/{run_id}/")
    expect(page.get_by_text("Cancelled. What was done is being undone.")).to_be_visible()
    shows_the_undo(page)
    check_record(site, run_id)

    stale.get_by_label("Reason").fill("once more")
    with stale.expect_navigation() as sent:
        stale.get_by_role("button", name="Cancel run and undo 3 steps").click()
    assert sent.value.status == 409
    expect(stale.get_by_role("alert")).to_contain_text("Nothing was changed.")
    check_record(site, run_id)
    stale.get_by_role("link", name="Back to the run").click()
    expect(stale.locator(".head .badge").first).to_have_text("Cancelled")


def test_keep_running_keeps_it_running(site: Site) -> None:
    run_id = at_work(site, "kept-running")
    page = site.visit("operator")
    ask_to_cancel(page, run_id)
    page.get_by_role("link", name="Keep running").click()
    expect(page.locator(".head .badge").first).to_have_text("Running")
    assert site.run(run_id).stop is None
    site.ledger.open("kept-running")
    expect(page.locator(".head .badge").first).to_have_text("Done")


def test_a_reason_of_blanks_is_refused_on_the_page(site: Site) -> None:
    run_id = at_work(site, "blank-reason")
    page = site.visit("operator")
    ask_to_cancel(page, run_id)
    page.get_by_label("Reason").fill("   ")
    with page.expect_navigation() as sent:
        page.get_by_role("button", name=re.compile("Cancel run and undo")).click()
    assert sent.value.status == 422
    expect(page.get_by_role("alert")).to_contain_text(re.compile("reason", re.IGNORECASE))
    assert site.run(run_id).stop is None
    site.ledger.open("blank-reason")
    site.live.finish(run_id)


def test_cancel_and_retry_work_without_javascript(site: Site) -> None:
    run_id = at_work(site, "no-script")
    page = site.visit("operator", java_script_enabled=False)
    ask_to_cancel(page, run_id)
    page.get_by_label("Reason").fill("customer withdrew")
    page.get_by_role("button", name="Cancel run and undo 3 steps").click()
    expect(page).to_have_url(f"{site.url}/runs/{run_id}/")
    expect(page.get_by_text("Cancelled. What was done is being undone.")).to_be_visible()
    site.live.finish(run_id)
    page.reload()
    shows_the_undo(page)
    check_record(site, run_id)
    assert page.locator("[data-live]").is_hidden()  # says "Live" only where it is

    page.get_by_role("link", name="Retry…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry this run?")
    page.get_by_label("Also run again").select_option("*")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_label("Also run again")).to_have_value("*")
    expect(page.locator("h2:has-text('Will run again') + ul li")).to_have_count(4)
    site.ledger.open("no-script")
    page.get_by_label("Reason").fill("customer came back")
    page.get_by_role("button", name="Retry 4 steps and shards").click()
    expect(page.get_by_text("Retried: the run goes on.")).to_be_visible()
    run = site.live.finish(run_id)
    page.reload()
    expect(page.locator(".head .badge").first).to_have_text("Done")
    (act,) = site.acts(run_id, "retry")
    assert run.state == "done" and run.retries == 1 and act.reason == "customer came back"
    assert site.ledger.effects("a", run_id) == 2
