"""What people come for, from the first click to the last: with real workers, on the record that they leave."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from orchestrator.engine.submit import submit, submit_many
from orchestrator.models import DeadLetter, Run
from tests.browser.site import Site
from tests.harness.factory import make
from tests.harness.invariants import check_invariants
from tests.harness.wait import wait_until


@pytest.fixture(scope="module", autouse=True)
def _crew(site: Site) -> Iterator[None]:
    """Workers; at the end the record must agree with itself."""
    site.crew()
    yield
    check_invariants(Run.objects.filter(workflow__startswith="kit-").values_list("pk", flat=True)[:20], at_rest=False)


def test_support_finds_an_upload_by_a_label_and_reads_the_answer(site: Site) -> None:
    submit("kit-chain", "upload-77", {"do": {"b": "hold:upload"}}, labels={"customer": "ann.lee@example.com"})
    page = site.visit("support", "/")
    page.keyboard.press("/")
    page.keyboard.type("  ann.lee@example.com ")
    page.keyboard.press("Enter")
    main = page.locator("main")
    expect(main).to_contain_text("upload-77")
    expect(main).to_contain_text(re.compile("b (is running|has been running|queued|has been queued)"))
    site.ledger.open("upload")


def test_two_hundred_of_one_cause_are_replayed_and_none_of_another(site: Site) -> None:
    runs = [
        {"workflow": "kit-solo", "subject_id": f"disk-{n}", "input": {"do": {"a": "fail_until:disk"}}}
        for n in range(200)
    ]
    runs += [
        {"workflow": "kit-solo", "subject_id": f"card-{n}", "input": {"do": {"a": "fail_until:card"}}} for n in range(3)
    ]
    submit_many(runs)
    wait_until(lambda: DeadLetter.objects.filter(state="open").count() == 203, 60)
    site.ledger.open("disk")
    disk = DeadLetter.objects.filter(run__subject_id="disk-0").get().fingerprint
    page = site.visit("operator", f"/dead-letters/?fingerprint={disk}")
    page.locator("main").get_by_role("link", name=re.compile("^Replay")).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("200")
    page.get_by_label("Reason").fill("the disk was replaced")
    page.get_by_role("button", name=re.compile("^Replay 200 dead letters")).click()
    expect(page).to_have_url(re.compile("/bulk/[0-9a-f-]{36}/"))
    expect(page.locator("main")).to_contain_text("200 of 200", timeout=90_000)
    done = Run.objects.filter(subject_id__startswith="disk-", state="done")
    wait_until(lambda: done.count() == 200, 60)
    assert DeadLetter.objects.filter(fingerprint=disk, state="replayed").count() == 200
    assert set(Run.objects.filter(subject_id__startswith="card-").values_list("state", "retries")) == {("failed", 0)}


def test_a_page_says_why_a_run_waits_for_a_full_topic(site: Site) -> None:
    run_id = site.submit("topic", "full", {"list": {"emit": ["first", "second"]}, "a": "hold:full"})
    page = site.visit("viewer", f"/runs/{run_id}/")
    expect(page.get_by_role("region", name="Where is it")).to_contain_text(re.compile("topic gpu.*1 of 1"))
    site.ledger.open("full")
    expect(page.locator(".head .badge").first).to_have_text("Done")


def test_a_viewer_has_no_button_and_is_refused(site: Site) -> None:
    run = make("failed", subject="looked-at")
    page = site.visit("viewer", f"/runs/{run.id}/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("looked-at")
    expect(page.locator("main").get_by_role("link", name=re.compile("Retry|Cancel run|Force|Replay"))).to_have_count(0)
    expect(page.locator("main form[method=post]")).to_have_count(0)
    answer = page.goto(f"/runs/{run.id}/retry/")
    assert answer is not None and answer.status == 403
    expect(page.locator("main")).to_contain_text("operator")


def tab_to(page: Page, name: str) -> None:
    """Presses Tab until what is so called has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        text = page.evaluate("(document.activeElement.textContent || '').trim() || document.activeElement.name || ''")
        if re.search(name, text):
            return
    raise AssertionError(f"Tab never comes to {name}")


def test_a_run_is_found_and_cancelled_by_keyboard_alone(site: Site) -> None:
    run_id = site.submit("saga", "by-keyboard", {"c": "coop_hold:by-keyboard"})
    site.called("c", run_id)
    page = site.visit("operator", "/")
    page.keyboard.press("/")
    page.keyboard.type(str(run_id))
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("by-keyboard")
    tab_to(page, "^by-keyboard|Open the run")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/runs/{run_id}/")
    tab_to(page, "^Cancel run…")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel this run?")
    tab_to(page, "^reason$")
    page.keyboard.type("by keyboard alone")
    tab_to(page, "^Cancel run and undo")
    page.keyboard.press("Enter")
    expect(page.locator(".head .badge").first).to_have_text("Cancelled")
    assert [act.reason for act in site.acts(run_id, "cancel")] == ["by keyboard alone"]
