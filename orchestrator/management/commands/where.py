"""``manage.py where SUBJECT``: where a subject's work stands."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.engine import subjects
from orchestrator.management import base
from orchestrator.management.people import table


class Command(base.Command):
    """With ``--json`` the answer of ``GET /subjects/{subject_id}``."""

    help = "Say where a subject's work stands."

    def arguments(self, parser: CommandParser) -> None:
        """``SUBJECT``."""
        parser.add_argument("subject")

    def run(self, **options: Any) -> None:
        """Prints the answer, the reply for the customer, and the runs."""
        found = subjects.to_json(subjects.about(options["subject"]))
        rows = [
            [run["id"], f"{run['workflow']} v{run['version']}", run["state"], run["submitted_at"], run["where"]]
            for run in found["runs"]
        ]
        runs = table(("run", "workflow", "state", "submitted", "where"), rows)
        self.emit(found, text=f"{found['answer']}\n\nFor the customer: {found['reply']}\n\n{runs}")
