"""Pages that follow what real workers do, without being reloaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from orchestrator.models import DeadLetter, Run
from tests.browser.clip import clip
from tests.browser.site import Site
from tests.harness.invariants import check_invariants
from tests.harness.wait import wait_until


@pytest.fixture(scope="module", autouse=True)
def _crew(site: Site) -> Iterator[None]:
    """Workers; at the end the record must agree with itself."""
    site.crew()
    yield
    check_invariants(at_rest=False)


def mark(page: Page) -> None:
    """Leaves a mark in the window that a reload would wipe out."""
    page.evaluate("window.sameWindow = true")


def is_same(page: Page) -> bool:
    return bool(page.evaluate("window.sameWindow === true"))


def test_an_uploaded_video_is_watched_until_its_pictures_show(site: Site, tmp_path: Path) -> None:
    page = site.visit("operator", "/upload/")
    page.get_by_label("Video file").set_input_files(clip(tmp_path / "My film.mp4"))
    page.get_by_label("Mail to").fill("ann@example.com")
    page.get_by_role("button", name="Upload and start").click()
    expect(page).to_have_url(re.compile(r"/runs/[0-9a-f-]{36}/$"))
    mark(page)
    expect(page.get_by_role("heading", level=1)).to_contain_text("my-film-")
    expect(page.locator(".head .badge").first).to_have_text("Done", timeout=90_000)
    sprite = page.get_by_role("img", name="sprite.jpg of step thumbnail")
    expect(sprite).to_be_visible()
    sprite.scroll_into_view_if_needed()  # it is loaded when it comes into sight
    page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=sprite.element_handle())
    for height in ("1080p", "720p", "480p"):
        expect(page.get_by_role("link", name=f"{height} · rendition.mp4")).to_be_visible()
    assert is_same(page)
    run = Run.objects.get(workflow="video-upload")
    assert run.state == "done" and run.submitted_by == "operator" and str(run.id) in page.url
    assert sorted(run.steps.filter(step="transcode", state="done").values_list("shard", flat=True)) == [
        "1080p",
        "480p",
        "720p",
    ]


def test_the_page_of_a_run_follows_it_step_by_step(site: Site) -> None:
    run_id = site.submit("chain", "followed", {"b": "hold:b-may-end"})
    page = site.visit("operator", f"/runs/{run_id}/")
    mark(page)
    expect(page).to_have_title("followed, running · Switchyard")
    answer = page.get_by_role("region", name="Where is it")
    expect(answer).to_contain_text(re.compile(r"b (is running|has been running)"))
    site.ledger.open("b-may-end")
    expect(page.locator(".head .badge").first).to_have_text("Done")
    expect(page).to_have_title("followed, done · Switchyard")
    expect(page.get_by_role("link", name=re.compile("Cancel run…"))).to_have_count(0)
    assert is_same(page) and site.run(run_id).state == "done"


def test_a_paused_page_stays_as_it_is_until_it_is_resumed(site: Site) -> None:
    run_id = site.submit("chain", "paused-page", {"b": "hold:paused-may-end"})
    page = site.visit("viewer", f"/runs/{run_id}/")
    page.keyboard.press("p")
    expect(page.locator("[data-live]")).to_have_text("Paused")
    site.ledger.open("paused-may-end")
    site.live.finish(run_id)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_function("since => Date.now() - since > 3500", arg=page.evaluate("Date.now()"))  # longer than a tick
    assert asked == []
    expect(page.locator(".head .badge").first).to_have_text("Running")
    page.keyboard.press("p")
    expect(page.locator(".head .badge").first).to_have_text("Done")


def test_a_failure_shows_on_the_overview_and_is_retried_from_its_page(site: Site) -> None:
    page = site.visit("operator", "/")
    mark(page)
    tiles = page.get_by_role("navigation", name="What wants attention")
    tile = tiles.get_by_role("link", name=re.compile("Dead letters"))
    expect(tile.locator(".v")).to_have_text("0")
    run_id = site.submit("tries", "will-fail", {"a": "fail_until:mended"})
    expect(tile.locator(".v")).to_have_text("1")
    expect(page.get_by_label("State of the system")).to_contain_text("1 failure waits in the dead letters")
    assert is_same(page)
    page.get_by_role("link", name=re.compile("^Inspect 1 ×")).click()
    expect(page.get_by_role("region", name="Dead letters")).to_contain_text("mended is not mended")
    page.get_by_role("link", name="will-fail").click()
    expect(page.locator(".head .badge").first).to_have_text("Failed")
    expect(page.locator(".o-error")).to_contain_text("RuntimeError: mended is not mended")

    page.get_by_role("link", name="Retry…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry this run?")
    again = page.locator("h2:has-text('Will run again') + ul")
    expect(again.locator("li")).to_have_text([re.compile("^a .*attempt 4"), re.compile("^b was not reached")])
    site.ledger.open("mended")
    page.get_by_label("Reason").fill("the disk is mended")
    page.get_by_role("button", name="Retry 2 steps and shards").click()
    expect(page.get_by_text("Retried: the run goes on.")).to_be_visible()
    expect(page.locator(".head .badge").first).to_have_text("Done")
    expect(page.get_by_role("region", name="Audit trail")).to_contain_text("the disk is mended")

    run = site.run(run_id)
    assert run.state == "done" and run.retries == 1 and run.steps.get(step="a").attempt == 4
    (act,) = site.acts(run_id, "retry")
    assert (act.actor, act.role, act.reason) == ("operator", "operator", "the disk is mended")
    assert not DeadLetter.objects.filter(state="open").exists()


def test_a_dead_letter_is_replayed_from_the_list(site: Site) -> None:
    run_id = site.submit("solo", "replayed", {"a": "fail_until:replay"})
    site.live.finish(run_id)
    site.ledger.open("replay")
    page = site.visit("operator", "/dead-letters/")
    row = page.get_by_role("row", name=re.compile("replayed"))
    row.locator("summary", has_text="Replay…").click()
    page.keyboard.press("Escape")
    expect(row.locator("details[open]")).to_have_count(0)
    row.locator("summary", has_text="Replay…").click()
    row.locator("details[open]").get_by_label("Reason").fill("cause is gone")
    row.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("1 dead letter replayed.")).to_be_visible()
    expect(row).to_have_count(0)
    wait_until(lambda: site.run(run_id).state == "done", 30, why=lambda: site.live.describe(run_id))
    assert DeadLetter.objects.get(run=run_id).state == "replayed"
