"""``manage.py retry ID [--from STEP] [--dry-run] --reason R``: a failed or cancelled run goes on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.ids import parse_run_id
from orchestrator.engine.describe import run_json
from orchestrator.engine.operate import RetryPreview, preview_retry, retry_run
from orchestrator.management import base
from orchestrator.management.people import operator, run_text, table


class Command(base.Command):
    """With ``--json`` the run as the API answers it; with ``--dry-run`` what would be executed again."""

    help = "Let a failed or cancelled run go on."

    def arguments(self, parser: CommandParser) -> None:
        """``ID``, ``--from``, ``--dry-run``, ``--reason``."""
        parser.add_argument("id")
        parser.add_argument(
            "--from", dest="from_step", metavar="STEP", help='also this step and all behind it; "*": all'
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would be executed again, change nothing")
        parser.add_argument("--reason", default="", help="why; kept in the audit trail")

    def run(self, **options: Any) -> None:
        """Retries it, or says what that would do."""
        found, from_step = parse_run_id(options["id"]), options["from_step"]
        if options["dry_run"]:
            preview = preview_retry(found, from_step)
            self.emit({"dry_run": True, **asdict(preview)}, text=_preview_text(preview))
            return
        if not options["reason"].strip():
            raise base.UsageError("the following arguments are required: --reason")
        retry_run(found, operator(), options["reason"], from_step=from_step)
        run = run_json(found)
        self.emit(run, text=run_text(run))


def _preview_text(preview: RetryPreview) -> str:
    rows = [
        [item.step, item.shard, item.why, item.attempt, ", ".join(item.side_effects) or "–"] for item in preview.steps
    ]
    heads = ("executed again", "shard", "because", "attempt", "calls to the outside")
    kept = f"\n\nKept: {', '.join(preview.kept)}" if preview.kept else ""
    again = ", ".join(f"{name} ({number})" for name, number in preview.side_effects.items())
    return f"{table(heads, rows)}{kept}\n\nCalls to the outside that would be made again: {again or 'none was marked'}"
