"""A real browser on a real web server. Without Chromium these tests skip in one line, or fail: REQUIRE_BROWSER=1."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.site import Site
from tests.conftest import FAILED
from tests.harness import ledger
from tests.harness.live import Live
from tests.harness.scratch import ScratchDatabase

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
#: The sandbox needs rights that root in a container lacks; the rest keeps the browser from calling anybody.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SKIPPED = "browser tests"
#: The longest that a page may take to show what has happened: two ticks of 3 s, and a busy machine.
PATIENCE = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.nodeid:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Gives all tests that skip for want of a browser one place, so that the summary has one line for them."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and isinstance(report.longrepr, tuple) and SKIPPED in report.longrepr[2]:
        report.longrepr = (__file__, 1, report.longrepr[2])


@pytest.fixture(scope="session", autouse=True)
def chromium() -> str:
    """Path of the browser. Before everything else, so that nothing is set up for tests that skip."""
    named = os.environ.get("CHROMIUM", "")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    said = f"{named!r} (CHROMIUM) is no program" if named else "no Chromium or Chrome on the path"
    if os.environ.get("REQUIRE_BROWSER", "").lower() in ("", "0", "no", "false"):
        pytest.skip(f"{SKIPPED}: {said}; install one (Debian: apt-get install chromium)")
    pytest.fail(f"REQUIRE_BROWSER is set, but {said}", pytrace=False)


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """One for all tests of the folder; each test has contexts of its own."""
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv(
            "DJANGO_ALLOW_ASYNC_UNSAFE", "true"
        )  # Playwright's loop lives in this thread; ours does not use it
        expect.set_options(timeout=PATIENCE)
        started = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def site(
    browser: Browser,
    scratch_database: ScratchDatabase,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """The web server on committed data, with the kit and the example published. ``site.crew()`` adds those who work."""
    folder = tmp_path_factory.mktemp("site")
    with django_db_blocker.unblock(), scratch_database.in_use(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "ORCHESTRATOR", settings.ORCHESTRATOR)  # put back at the end
        patch.setenv(ledger.VARIABLE, str(folder))
        live = Live(scratch_database, settings, patch, folder)
        made = Site(live, browser, ledger.Ledger(folder))
        try:
            made.start()
            yield made
        finally:
            live.end()
            scratch_database.empty()


@pytest.fixture(autouse=True)
def _visitors_leave(request: pytest.FixtureRequest) -> Iterator[None]:
    """Closes the test's windows. None may have seen an error of a script or of the CSP."""
    site: Site | None = request.getfixturevalue("site") if "site" in request.fixturenames else None
    yield
    if site is None:
        return
    if request.node.stash.get(FAILED, False):
        for title, text in site.describe():
            request.node.add_report_section("call", title, text)
    problems = site.leave()
    assert not problems, "\n".join(problems)
