"""``manage.py dead_letters [list|replay|discard]``: permanent failures, one by one or many at once.

``replay ID…`` acts at once. ``replay --id ID…`` or ``--workflow … --step … --cause … --fingerprint …`` starts a bulk
operation, which the dispatcher works off; ``--wait`` stays until it has ended and works at it too.
"""

from __future__ import annotations

import time
from argparse import SUPPRESS
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.bulk import BulkState, BulkVerb
from orchestrator.core.errors import SwitchyardError
from orchestrator.core.states import Cause, DeadLetterState
from orchestrator.engine import bulk, bulk_report, find_dead_letters
from orchestrator.engine.find import MAX_PAGE
from orchestrator.engine.operate import discard_dead_letter, replay_dead_letter
from orchestrator.management import base
from orchestrator.management.people import operator, table
from orchestrator.models import BulkOperation

_CRITERIA = ("id", "workflow", "step", "cause", "fingerprint")


class Command(base.Command):
    """``list`` prints ``{items, next_cursor}`` with ``--json``; IDs ``{items, errors}``; many the operation."""

    help = "List dead letters, replay them, or discard them."

    def arguments(self, parser: CommandParser) -> None:
        """The three verbs; without one: list."""
        verbs = parser.add_subparsers(dest="verb", metavar="list|replay|discard")
        listed = verbs.add_parser("list", help="the open ones, latest first")
        _filters(parser)
        # What a verb's own parser does not find, it must not reset to a default.
        _filters(listed, default=SUPPRESS)
        for verb, text in (("replay", "execute again"), ("discard", "close without executing anything")):
            one = verbs.add_parser(verb, help=text)
            one.add_argument("ids", nargs="*", type=int, metavar="ID", help="these, at once")
            _many(one)
        for one in (listed, *(verbs.choices[verb] for verb in ("replay", "discard"))):
            one.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document on stdout")

    def run(self, **options: Any) -> None:
        """Lists or acts."""
        if options["verb"] in (None, "list"):
            self._list(options)
            return
        chosen = {name: options[name] for name in _CRITERIA if options.get(name) is not None}
        if not options["dry_run"] and not (options["reason"] or "").strip():
            raise base.UsageError("the following arguments are required: --reason")
        if options["ids"]:
            if chosen or options["dry_run"] or options["wait"]:
                raise base.UsageError("ID alone acts at once; for many give --id or a filter")
            self._act(options["verb"], options["ids"], options["reason"])
        else:
            self._act_on_many(options, chosen)

    def _act_on_many(self, options: dict[str, Any], chosen: dict[str, Any]) -> None:
        """Counts, or starts an operation and says which; with ``--wait`` works at it until it has ended."""
        verb, ids = options["verb"], chosen.pop("id", None)
        if not chosen and not ids:
            raise base.UsageError("say which: ID, --id, --workflow, --step, --cause or --fingerprint")
        filters = find_dead_letters.DeadLetterFilters(**chosen) if chosen else None
        if options["dry_run"]:
            seen = bulk.preview(verb, filters, ids)
            self.emit(bulk_report.preview_json(seen), text=_preview_text(seen))
            return
        made = bulk.start(verb, operator(), options["reason"], filters=filters, ids=ids)
        if options["wait"]:
            made = self._wait(made)
        self.emit(bulk_report.to_json(made), text=_text(made))
        if options["wait"] and (made.state != BulkState.DONE or made.failed):
            raise base.error(made.note or f"bulk operation {made.pk} is {made.state}, {made.failed} were not done")

    def _wait(self, operation: BulkOperation) -> BulkOperation:
        """A dispatcher need not run: this process takes its turns too."""
        said = ""
        while operation.state == BulkState.RUNNING:
            bulk.advance()
            time.sleep(0.1)
            operation = bulk.get(operation.pk)
            if (text := _text(operation)) != said:
                self.note(said := text)
        return operation

    def _list(self, options: dict[str, Any]) -> None:
        if not 1 <= options["limit"] <= MAX_PAGE:
            raise base.UsageError(f"--limit is a whole number from 1 to {MAX_PAGE}")
        filters = find_dead_letters.DeadLetterFilters(
            state=None if options["state"] == "any" else options["state"],
            workflow=options["workflow"],
            step=options["step"],
        )
        page = find_dead_letters.page(filters, options["cursor"], options["limit"])
        items = [find_dead_letters.item(letter) for letter in page.items]
        rows = [
            [item["id"], item["workflow"], item["subject_id"], item["step"], item["shard"], item["cause"],
             item["attempts"], item["last_at"], item["run_id"], (item["error"] or {}).get("message")]
            for item in items
        ]  # fmt: skip
        head = ("id", "workflow", "subject", "step", "shard", "cause", "attempts", "last", "run", "error")
        self.emit({"items": items, "next_cursor": page.next_cursor}, text=table(head, rows))

    def _act(self, verb: str, ids: list[int], reason: str) -> None:
        """Each by itself: one that is refused does not keep the rest; any refusal makes the exit code 1."""
        act = replay_dead_letter if verb == "replay" else discard_dead_letter
        items: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for dead_letter_id in dict.fromkeys(ids):
            try:
                act(dead_letter_id, operator(), reason)
                items.append(find_dead_letters.item(find_dead_letters.get(dead_letter_id)))
            except SwitchyardError as refused:
                errors.append({"id": dead_letter_id, "code": refused.code, "message": refused.message})
        text = "\n".join(f"{item['id']}  {item['step']} {item['shard']}  {item['state']}" for item in items)
        if items or self.as_json:
            self.emit({"items": items, "errors": errors}, text=text)
        if errors:
            raise base.error("; ".join(error["message"] for error in errors))


def _many(parser: CommandParser) -> None:
    """What names many, and how."""
    many = parser.add_argument_group("many at once")
    many.add_argument("--id", nargs="+", action="extend", type=int, metavar="ID", default=SUPPRESS)
    many.add_argument("--workflow", default=SUPPRESS)
    many.add_argument("--step", default=SUPPRESS)
    many.add_argument("--cause", choices=[str(cause) for cause in Cause], default=SUPPRESS)
    many.add_argument("--fingerprint", help="what failed alike has the same", default=SUPPRESS)
    many.add_argument("--dry-run", action="store_true", help="change nothing, say what would be done")
    many.add_argument("--wait", action="store_true", help="until all are done")
    parser.add_argument("--reason", help="why; kept in the audit trail")


def _text(operation: BulkOperation) -> str:
    verb = BulkVerb(operation.verb)
    return (
        f"{operation.pk}  {operation.state}: {operation.done} of {operation.total} {verb.objects()} {verb.past}, "
        f"{operation.skipped} skipped, {operation.failed} failed"
    )


def _preview_text(seen: bulk.BulkPreview) -> str:
    counted = (("state", seen.states), ("version", seen.versions), ("step", seen.steps))
    rows = [[what, name, count] for what, counts in counted for name, count in counts.items()]
    rows += [["would be called again", name, count] for name, count in (seen.side_effects or {}).items()]
    head = f"{seen.eligible} of {seen.total} would be {seen.verb.past}; nothing was changed"
    return f"{head}\n\n{table(('by', 'name', 'count'), rows)}"


def _filters(parser: CommandParser, **defaults: Any) -> None:
    states = ["any", *map(str, DeadLetterState)]
    parser.add_argument("--state", choices=states, **{"default": "open", **defaults})
    parser.add_argument("--workflow", **defaults)
    parser.add_argument("--step", **defaults)
    parser.add_argument("--limit", type=int, help=f"1 to {MAX_PAGE}, default 50", **{"default": 50, **defaults})
    parser.add_argument("--cursor", help="next_cursor of the page before", **defaults)
