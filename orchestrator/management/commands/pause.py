"""``manage.py pause workflow|queue NAME --for 1h --reason R``: nothing new starts there for a while."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.engine import pauses
from orchestrator.management import base
from orchestrator.management.people import facts, operator, reason_argument, seconds


class Command(base.Command):
    """With ``--json``: ``{kind, name, until, reason, actor}``."""

    help = "Pause a workflow (no step of it starts, undos do) or a queue (nothing on it starts), an hour by default."

    def arguments(self, parser: CommandParser) -> None:
        """``workflow|queue``, ``NAME``, ``--for``, ``--reason``."""
        parser.add_argument("kind", choices=pauses.KINDS)
        parser.add_argument("name")
        parser.add_argument("--for", dest="length", default="1h", metavar="1h", help="how long; the default is 1h")
        reason_argument(parser)

    def run(self, **options: Any) -> None:
        """Pauses it; one that is paused gets the new time and reason."""
        length = seconds(options["length"], "--for")
        made = pauses.pause(options["kind"], options["name"], length, operator(), options["reason"])
        pairs = [("paused", f"{made.kind} {made.name}"), ("until", made.until), ("reason", made.reason)]
        self.emit(asdict(made), text=facts(pairs))
