"""The site under test: a gunicorn of its own, people who are signed in, and workers where a test wants them."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Group, User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from orchestrator.engine.submit import submit
from orchestrator.models import AuditRecord, Run
from tests.harness.ledger import Ledger
from tests.harness.live import Live
from tests.harness.processes import Process
from tests.harness.wait import wait_until

PASSWORD = "correct horse battery"
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
#: Chromium reports every answer of 400 and more as an error of the console; tests look at the status themselves.
_ANSWER = "Failed to load resource: the server responded with a status of"


class Site:
    """The address, who visits it, and the record behind it."""

    def __init__(self, live: Live, browser: Browser, kit: Ledger) -> None:
        self.live = live
        self.ledger = kit
        self.url = ""
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._pages: list[Page] = []
        self._problems: list[str] = []

    def start(self) -> None:
        """Publishes the kit and the example, and starts the web server as ``make run`` does."""
        self.live.publish("tests.workflows.kit", "examples.video_upload")
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "gunicorn", "orchestrator.wsgi", "--bind", f"127.0.0.1:{port}"]
        command += ["--worker-class", "gthread", "--workers", "1", "--threads", "4", "--log-level", "warning"]
        self.web = Process("web", command, self.live.environment(), self.live.folder / "web.log")
        self.live.processes.append(self.web)
        wait_until(lambda: _answers(self.url) or not self.web.is_running(), 60, why=self.web.log_tail)
        assert self.web.is_running(), self.web.log_tail()

    def crew(self) -> None:
        """A dispatcher and two worker processes for all queues of the kit and the example."""
        self.live.start_dispatcher()
        self.live.start_worker("default", "media-light", "media-heavy", processes=2)

    def user(self, role: str) -> User:
        """Somebody with this role, called like it; the password is :data:`PASSWORD`."""
        user, made = User.objects.get_or_create(username=role or "nobody")
        if made:
            user.password = PBKDF2PasswordHasher().encode(PASSWORD, "salt", iterations=1)
            user.save()
            user.groups.set(Group.objects.filter(name=role))
        return user

    def visit(self, role: str | None = None, path: str = "", **context: Any) -> Page:
        """A window of somebody who is signed in with the role; ``None``: signed out. ``path`` is opened."""
        made = self._browser.new_context(
            base_url=self.url, **{"viewport": DESKTOP, "reduced_motion": "reduce", **context}
        )
        self._contexts.append(made)
        if role is not None:
            client = Client()
            client.force_login(self.user(role))
            made.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": self.url}])
        return self.window(made, path)

    def window(self, context: BrowserContext, path: str = "") -> Page:
        """One more window of the same person."""
        page = context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self._problems.append(f"script: {error}"))
        self._pages.append(page)
        if path:
            page.goto(path)
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_ANSWER):
            self._problems.append(f"console of {message.page.url if message.page else '?'}: {message.text}")

    def describe(self) -> list[tuple[str, str]]:
        """What the windows show and the processes said, for the report of a test that failed."""
        shown = []
        for number, page in enumerate(p for p in self._pages if not p.is_closed()):
            picture = self.live.folder / f"failed-{number}.png"
            page.screenshot(path=picture)
            shown.append((f"{page.url} ({picture})", page.locator("body").inner_text()[:4000]))
        return shown + [(process.name, process.log_tail(20)) for process in self.live.processes]

    def leave(self) -> list[str]:
        """Closes all windows; what went wrong in them."""
        for context in self._contexts:
            context.close()
        problems = self._problems
        self._contexts, self._pages, self._problems = [], [], []
        return problems

    def submit(self, workflow: str, subject: str, do: dict[str, Any] | None = None) -> UUID:
        """A run of the kit."""
        return submit(f"kit-{workflow}", subject, {"do": do or {}})

    def run(self, run_id: UUID | str) -> Run:
        """The run as the record has it."""
        return Run.objects.get(pk=run_id)

    def acts(self, run_id: UUID | str, action: str) -> list[AuditRecord]:
        """What the audit trail has of an action on a run, oldest first."""
        return list(AuditRecord.objects.filter(run_id=run_id, action=action).order_by("id"))

    def called(self, name: str, run_id: UUID, times: int = 1) -> None:
        """Waits until the handler of a step has been called so often."""
        wait_until(lambda: self.ledger.calls(name, run_id) >= times, 30, why=lambda: self.live.describe(run_id))


def asset(name: str) -> str:
    """Text of a file beside these tests."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
