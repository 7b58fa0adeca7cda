"""``manage.py runs``: runs that match, newest first."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.states import RunState
from orchestrator.engine.describe import run_items
from orchestrator.engine.find import MAX_PAGE, RunFilters, page
from orchestrator.management import base
from orchestrator.management.people import table


class Command(base.Command):
    """With ``--json`` ``{items, next_cursor}``, as ``GET /runs``."""

    help = "List runs, newest first."

    def arguments(self, parser: CommandParser) -> None:
        """The filters."""
        parser.add_argument("--state", choices=[str(state) for state in RunState])
        parser.add_argument("--workflow")
        parser.add_argument("--subject")
        parser.add_argument("--overdue", action="store_true", help="running past the deadline")
        parser.add_argument("--limit", type=int, default=50, help=f"1 to {MAX_PAGE}, default 50")
        parser.add_argument("--cursor", help="next_cursor of the page before")

    def run(self, **options: Any) -> None:
        """Prints one page."""
        if not 1 <= options["limit"] <= MAX_PAGE:
            raise base.UsageError(f"--limit is a whole number from 1 to {MAX_PAGE}")
        filters = RunFilters(
            workflow=options["workflow"],
            state=(options["state"],) if options["state"] else (),
            subject_id=options["subject"],
            overdue=options["overdue"] or None,
        )
        found = page(filters, options["cursor"], options["limit"])
        items = run_items(found.items)
        rows = [
            [run["id"], f"{run['workflow']} v{run['version']}", run["subject_id"], run["state"], run["cause"],
             f"{run['progress']:.0%}", run["submitted_at"], run["where"]]
            for run in items
        ]  # fmt: skip
        self.emit(
            {"items": items, "next_cursor": found.next_cursor},
            text=table(("run", "workflow", "subject", "state", "cause", "done", "submitted", "where"), rows),
        )
        if found.next_cursor and not self.as_json:
            self.note(f"there are more: --cursor {found.next_cursor}")
