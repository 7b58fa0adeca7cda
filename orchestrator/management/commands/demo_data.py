"""``manage.py demo_data --runs N``: the history of a made-up shop."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.management import base
from orchestrator.testing.demo import generate

MOST = 20_000_000


class Command(base.Command):
    """Exit code 0: made; 1: the database holds runs."""

    help = (
        "Fill a database with a believable history: several workflows and versions, failures with causes, dead "
        "letters, runs of every kind under way. For looking at pages and measuring them. What is live stands "
        "still: it has no handlers. Refuses a database that holds runs, unless its name has test, "
        "disposable or scratch as a word, or --append."
    )

    def arguments(self, parser: CommandParser) -> None:
        """How much."""
        parser.add_argument("--runs", type=int, required=True, metavar="N", help="how many runs (six steps each)")
        parser.add_argument("--seed", type=int, default=1, metavar="S", help="the same seed gives the same shop")
        parser.add_argument("--days", type=float, default=3.0, help="how long ago it begins (default: 3)")
        parser.add_argument("--append", action="store_true", help="even if there are runs already")

    def run(self, **options: Any) -> None:
        """Makes it and says how much there is."""
        if not 1 <= options["runs"] <= MOST:
            raise base.UsageError(f"--runs is a whole number from 1 to {MOST:,}")
        if not 0.01 <= options["days"] <= 3650:
            raise base.UsageError("--days is a number from 0.01 to 3650")
        made = generate(
            options["runs"], seed=options["seed"], days=options["days"], append=options["append"], say=self.note
        )
        text = f"{made.runs:,} runs with {made.steps:,} steps in {made.seconds:.0f} s"
        self.emit(made.as_json(), text=text)
