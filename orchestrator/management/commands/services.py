"""``manage.py services start|stop|status|env``: the private PostgreSQL and Valkey."""

from __future__ import annotations

import shlex
from typing import Any

from django.core.management.base import CommandParser

from orchestrator import services
from orchestrator.management import base
from orchestrator.management.autostart import migrate_private


class Command(base.Command):
    """Starts, stops and shows the servers that are used where no others are named."""

    help = (
        "The private PostgreSQL and Valkey, used where DATABASE_URL and REDIS_URL are unset. "
        "start: start both. stop: stop both, data stay. status: exit 1 unless both run. "
        "reset --yes: stop both and delete their data. "
        'env: start both and print their addresses for a shell: eval "$(python manage.py services env)".'
    )

    def arguments(self, parser: CommandParser) -> None:
        """One verb."""
        parser.add_argument("action", choices=["start", "stop", "status", "env", "reset"])
        parser.add_argument("--yes", action="store_true", help="reset: really delete the data")

    def run(self, **options: Any) -> None:
        """Does it."""
        self.sure: bool = options["yes"]
        getattr(self, f"do_{options['action']}")()

    def do_start(self) -> None:
        """Starts what does not run."""
        urls = self._start()
        for name in urls.started:
            self.note(f"started {name}")
        self._show()

    def do_stop(self) -> None:
        """Stops what runs."""
        stopped = services.stop()
        self.emit({"stopped": stopped}, text=f"stopped {' and '.join(stopped)}" if stopped else "nothing was running")

    def do_status(self) -> None:
        """Shows both."""
        if not self._show():
            raise SystemExit(1)

    def do_env(self) -> None:
        """Addresses, for a shell."""
        urls = self._start()
        values = {"DATABASE_URL": urls.database, "REDIS_URL": urls.redis}
        self.emit(values, text="export " + " ".join(f"{name}={shlex.quote(url)}" for name, url in values.items()))

    def do_reset(self) -> None:
        """Deletes what the private servers hold, and the sign-ins that go with it."""
        if not self.sure:
            raise base.UsageError("this deletes every run, sign-in and artifact of the private servers; add --yes")
        stopped = services.reset()
        self.emit({"stopped": stopped, "reset": True}, text="the private servers are empty; make run starts anew")

    def _start(self) -> services.Urls:
        names = services.private_names(services.LOCAL)
        urls = services.ensure(names=names)
        (services.LOCAL / services.OF_UP).unlink(missing_ok=True)  # asked for by name, they stay
        if "postgres" in names:
            migrate_private(urls)
        return urls

    def _show(self) -> bool:
        found = services.status()
        lines = []
        for name, server in found.items():
            state = f"running, pid {server['pid']}, port {server['port']}" if server["running"] else "stopped"
            used = "" if server["private"] else " (not used: the environment names another)"
            lines.append(f"{name:9} {state}{used}\n          data {server['data']}\n          log  {server['log']}")
        self.emit(found, text="\n".join(lines))
        return all(server["running"] or not server["private"] for server in found.values())
