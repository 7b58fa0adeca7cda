"""``manage.py prune --older-than 30d``: deletes old runs and what is past its retention."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.engine import retention
from orchestrator.engine.db import connect
from orchestrator.management import base
from orchestrator.management.people import facts, operator, seconds


class Command(base.Command):
    """With ``--json``: ``{dry_run, older_than}`` and the counts of :class:`~orchestrator.engine.retention.Pruned`."""

    help = "Delete runs that ended longer ago, with their rows and artifacts. Counters of the metrics stay."

    def arguments(self, parser: CommandParser) -> None:
        """``--older-than``, ``--dry-run``."""
        parser.add_argument("--older-than", required=True, metavar="30d", help="since the end of the run: 12h, 30d")
        parser.add_argument("--dry-run", action="store_true", help="count and delete nothing")

    def run(self, **options: Any) -> None:
        """Deletes and says how much."""
        length = seconds(options["older_than"], "--older-than")
        with connect("switchyard prune") as conn:
            pruned = retention.prune(conn, length, operator(), dry_run=options["dry_run"])
        counts = asdict(pruned)
        answer = {"dry_run": options["dry_run"], "older_than": length, **counts}
        would = "would be deleted" if options["dry_run"] else "deleted"
        lines = facts([(name.replace("_", " "), n) for name, n in counts.items() if n])
        self.emit(answer, text=f"{would}:\n{lines}" if lines else f"nothing {would}: no run ended longer ago")
