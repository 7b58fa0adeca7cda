"""Decisions and starts from the page: approving, rejecting, running an old run again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Locator, Page, expect

from orchestrator.models import Run
from tests.browser.site import Site
from tests.harness.invariants import check_invariants
from tests.harness.wait import wait_until


@pytest.fixture(scope="module", autouse=True)
def _crew(site: Site) -> Iterator[None]:
    """Workers; at the end the record must agree with itself."""
    site.crew()
    yield
    check_invariants(at_rest=False)


def editor(site: Site, path: str, **context: Any) -> Page:
    """A window of an operator who is in the group that is asked."""
    site.user("operator").groups.add(Group.objects.get_or_create(name="editors")[0])
    return site.visit("operator", path, **context)


def entry(page: Page, subject: str) -> Locator:
    return page.locator(".appr > li").filter(has=page.get_by_role("link", name=subject, exact=True))


def asked(site: Site, run_id: UUID) -> None:
    """Waits until the run stands at its approval."""
    rows = site.run(run_id).steps.filter(step="ok", state="waiting")
    wait_until(rows.exists, 30, why=lambda: site.live.describe(run_id))


def test_a_decision_arrives_live_is_approved_and_the_run_ends(site: Site) -> None:
    page = editor(site, "/approvals/")
    expect(page.get_by_text("No run waits for a decision.")).to_be_visible()
    run_id = site.submit("approval", "clip-1")
    expect(entry(page, "clip-1")).to_contain_text("waits for editors or an admin")
    stale = site.window(page.context, "/approvals/")
    onlooker = site.visit("viewer", "/approvals/")
    expect(entry(onlooker, "clip-1")).to_be_visible()
    assert onlooker.locator(".appr summary").count() == 0

    entry(page, "clip-1").get_by_text("Approve…").click()
    page.get_by_label("Reason").locator("visible=true").fill("seen and liked")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("Approved. The run goes on.")).to_be_visible()
    expect(page.get_by_text("No run waits for a decision.")).to_be_visible()
    assert site.live.finish(run_id).state == "done"
    (act,) = site.acts(run_id, "approve")
    assert (act.actor, act.role, act.reason) == ("operator", "operator", "seen and liked")

    entry(stale, "clip-1").get_by_text("Reject…").click()
    stale.get_by_label("Reason").locator("visible=true").fill("too late")
    stale.get_by_role("button", name="Reject", exact=True).click()
    expect(stale.locator("#toasts")).to_contain_text("Nothing was changed.")
    assert site.run(run_id).state == "done"
    assert site.acts(run_id, "reject") == []


def test_a_decision_is_refused_without_javascript(site: Site) -> None:
    run_id = site.submit("approval", "clip-2")
    asked(site, run_id)
    page = editor(site, "/approvals/", java_script_enabled=False)
    entry(page, "clip-2").get_by_text("Reject…").click()
    page.get_by_label("Reason").locator("visible=true").fill("wrong film")
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.get_by_text("Rejected.")).to_be_visible()
    run = site.live.finish(run_id)
    assert (run.state, run.cause, run.compensation) == ("failed", "error", "done")
    page.goto(f"/runs/{run_id}/")
    expect(page.get_by_text("rejected by operator: wrong film").first).to_be_visible()


def test_a_failed_run_is_run_again_with_other_input(site: Site) -> None:
    old_id = site.submit("chain", "clip-3", {"*": "fatal:broken"})
    old = site.live.finish(old_id)
    assert old.state == "failed"
    page = site.visit("operator", f"/runs/{old_id}/")
    page.get_by_role("link", name="Run again…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Run again")
    expect(page.get_by_label("Subject", exact=True)).to_have_value("clip-3")
    assert json.loads(page.get_by_label("Input").input_value()) == {"do": {"*": "fatal:broken"}}
    page.get_by_label("Input").fill('{"do": {}')
    page.get_by_role("button", name="Run again").click()
    expect(page.locator("#input-e")).to_contain_text("not JSON")
    assert Run.objects.filter(subject_id="clip-3").count() == 1
    page.get_by_label("Input").fill('{"do": {}}')
    page.get_by_role("button", name="Run again").click()
    expect(page.locator(".head .badge").first).to_have_text("Done")
    new = Run.objects.exclude(pk=old_id).get(subject_id="clip-3")
    assert page.url == f"{site.url}/runs/{new.id}/"
    assert (new.state, new.submitted_by, new.input) == ("done", "operator", {"do": {}})
    (act,) = site.acts(new.id, "submit")
    assert (act.actor, act.after) == ("operator", {"state": "running", "from": str(old_id)})
    assert site.run(old_id).updated_at == old.updated_at
