"""``manage.py cancel ID --reason R [--force]``: stops a run and undoes what it did."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.ids import parse_run_id
from orchestrator.engine.describe import run_json
from orchestrator.engine.operate import cancel_run
from orchestrator.management import base
from orchestrator.management.people import operator, reason_argument, run_text


class Command(base.Command):
    """With ``--json`` the run as the API answers it."""

    help = "Cancel a run: nothing new starts, and what it did is undone."

    def arguments(self, parser: CommandParser) -> None:
        """``ID``, ``--reason``, ``--force``."""
        parser.add_argument("id")
        reason_argument(parser)
        parser.add_argument("--force", action="store_true", help="kill running handlers at once")

    def run(self, **options: Any) -> None:
        """Cancels it."""
        found = parse_run_id(options["id"])
        cancel_run(found, operator(), options["reason"], force=options["force"])
        run = run_json(found)
        self.emit(run, text=run_text(run))
