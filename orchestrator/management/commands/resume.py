"""``manage.py resume workflow|queue NAME``: ends a pause."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.engine import pauses
from orchestrator.management import base
from orchestrator.management.people import operator


class Command(base.Command):
    """With ``--json``: ``{kind, name, resumed}``. Exit code 1 where nothing is paused."""

    help = "Resume a paused workflow or queue; what it held back goes on within two seconds."

    def arguments(self, parser: CommandParser) -> None:
        """``workflow|queue``, ``NAME``, ``--reason``."""
        parser.add_argument("kind", choices=pauses.KINDS)
        parser.add_argument("name")
        parser.add_argument("--reason", default="", help="why; kept in the audit trail")

    def run(self, **options: Any) -> None:
        """Resumes it."""
        kind, name = options["kind"], options["name"]
        pauses.resume(kind, name, operator(), options["reason"])
        self.emit({"kind": kind, "name": name, "resumed": True}, text=f"resumed  {kind} {name}")
