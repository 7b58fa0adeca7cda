"""`manage.py versions [--check]`: which versions are in use, and whether this code can still run them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from orchestrator.definitions import registry
from orchestrator.engine import operate, versions
from orchestrator.management import base
from orchestrator.management.people import operator


class Command(base.Command):
    """For deploys: old versions are needed until their last run has ended."""

    help = (
        "Lists published versions with their live runs; --check: exit 1 when a live run needs a handler that is gone."
    )

    def arguments(self, parser: CommandParser) -> None:
        """--check, --retire, --restore, --reason."""
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--retire", nargs=2, metavar=("WORKFLOW", "VERSION"), help="start no new runs on a version")
        what.add_argument("--restore", nargs=2, metavar=("WORKFLOW", "VERSION"), help="take a retired version into use")
        parser.add_argument("--reason", default="", help="why, for --retire and --restore; kept in the audit trail")
        parser.add_argument("--check", action="store_true", help="exit 1 when a live run needs a handler that is gone")

    def run(self, *args: Any, **options: Any) -> None:
        """Prints the versions; with --check only what is wrong decides the exit code."""
        for verb, change in (("retire", operate.retire_version), ("restore", operate.restore_version)):
            if named := options[verb]:
                change(named[0], _number(named[1]), operator(), options["reason"])
        registry.load_packages(settings.ORCHESTRATOR.workflows)
        found = versions.in_use()
        lines = [
            f"{v['workflow']} v{v['version']}  {v['live_runs']} live"
            + ("  retired" if v["retired_at"] else "")
            + (f"  MISSING: {', '.join(v['missing_handlers'])}" if v["missing_handlers"] else "")
            for v in found
        ]
        broken = [v for v in found if v["live_runs"] and v["missing_handlers"]]
        self.emit({"ok": not broken, "versions": found}, text="\n".join(lines) or "nothing is published")
        if options["check"] and broken:
            names = ", ".join(f"{v['workflow']} v{v['version']}" for v in broken)
            raise base.error(f"live runs of {names} need handlers that this code no longer has", returncode=1)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise base.UsageError(f"VERSION {text!r} is not a number")
    return int(text)
