"""``manage.py run ID``: one run with its steps."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.ids import parse_run_id
from orchestrator.engine.describe import run_json
from orchestrator.management import base
from orchestrator.management.people import run_text


class Command(base.Command):
    """With ``--json`` the run as the API answers it."""

    help = "Show one run."

    def arguments(self, parser: CommandParser) -> None:
        """``ID``."""
        parser.add_argument("id")

    def run(self, **options: Any) -> None:
        """Prints it."""
        run = run_json(parse_run_id(options["id"]))
        self.emit(run, text=run_text(run))
