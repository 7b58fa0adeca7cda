"""Signing in and out, and what each role may see and do. Nothing runs behind these pages: rows are written by hand."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from orchestrator.models import AuditRecord
from tests.browser.site import PASSWORD, Site
from tests.harness.factory import make


def fill_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_a_wrong_password_says_so_and_the_right_one_lands_on_the_overview(site: Site) -> None:
    site.user("operator")
    page = site.visit(path="/")
    fill_in(page, "operator", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("do not go together")
    expect(page.get_by_label("User name")).to_have_value("operator")
    fill_in(page, "operator", PASSWORD)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert page.url == f"{site.url}/"
    page.get_by_role("button", name="Sign out").click()
    page.goto("/runs/")
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_signed_out_one_returns_to_the_page_that_was_asked_for(site: Site) -> None:
    site.user("viewer")
    run = make("done", subject="returning")
    wanted = f"/runs/{run.id}/?show=all"
    page = site.visit(path=wanted)
    assert "/login/?next=" in page.url
    fill_in(page, "viewer", PASSWORD)
    expect(page.get_by_role("heading", level=1)).to_contain_text("returning")
    assert page.url == site.url + wanted


def test_a_session_that_ended_takes_an_open_page_to_the_sign_in_and_back(site: Site) -> None:
    page = site.visit("viewer", "/runs/?state=failed")
    page.context.clear_cookies()
    expect(page).to_have_url(re.compile(r"/login/\?next=%2Fruns%2F%3Fstate%3Dfailed"))
    fill_in(page, "viewer", PASSWORD)
    expect(page).to_have_url(f"{site.url}/runs/?state=failed")


@pytest.mark.parametrize("stage", ["failed", "mid_fan_out"])
@pytest.mark.parametrize("role", ["viewer", "support"])
def test_who_may_not_act_sees_no_buttons_and_cannot_force_it(site: Site, role: str, stage: str) -> None:
    run = make(stage, subject=f"{role}-{stage}")
    page = site.visit(role, f"/runs/{run.id}/")
    expect(page.get_by_role("heading", level=1)).to_contain_text(run.subject_id)
    expect(page.get_by_role("link", name=re.compile("Retry…|Cancel run…|Force…|Run again…"))).to_have_count(0)
    page.goto("/dead-letters/")
    expect(page.get_by_role("heading", name="Dead letters", level=1)).to_be_visible()
    assert page.locator("main form[method=post]").count() == 0
    token = page.locator("form[action='/logout/'] input[name=csrfmiddlewaretoken]").first.get_attribute("value") or ""
    acts = AuditRecord.objects.filter(run=run).count()
    for verb in ("cancel", "retry"):
        form = {"csrfmiddlewaretoken": token, "reason": "forged"}
        answer = page.request.post(f"/runs/{run.id}/{verb}/", form=form, headers={"Referer": page.url})
        assert answer.status == 403 and "This needs the role operator" in answer.text()
    assert site.run(run.id).state == run.state and AuditRecord.objects.filter(run=run).count() == acts


def test_a_post_without_the_token_of_its_form_changes_nothing(site: Site) -> None:
    run = make("mid_fan_out", subject="tokenless")
    page = site.visit("operator", f"/runs/{run.id}/")
    answer = page.request.post(f"/runs/{run.id}/cancel/", form={"reason": "forged"})
    assert answer.status == 403 and site.run(run.id).cancel_requested_at is None


def test_support_finds_a_run_by_its_subject_and_reads_the_answer(site: Site) -> None:
    run = make("retrying", subject="order-4711")
    page = site.visit("support", "/")
    page.get_by_role("searchbox", name="Subject or run id").fill("order-4711")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Where is it?")
    answer = page.get_by_role("region", name="Where is it").last
    expect(answer).to_contain_text("transcode")
    expect(page.locator("main")).to_contain_text("Converting your video")
    page.get_by_role("link", name="Open the run").click()
    expect(page).to_have_url(f"{site.url}/runs/{run.id}/")
    page.goto("/where/?q=order-47")
    expect(page.get_by_role("heading", name="No exact match")).to_be_visible()
    page.goto("/where/?q=nothing-has-this-name")
    expect(page.locator("main")).to_contain_text("Never arrived")
