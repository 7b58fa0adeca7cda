"""``manage.py dead_letters [list|replay|discard]``: permanent failures."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.errors import SwitchyardError
from orchestrator.core.states import DeadLetterState
from orchestrator.engine import find_dead_letters
from orchestrator.engine.find import MAX_PAGE
from orchestrator.engine.operate import discard_dead_letter, replay_dead_letter
from orchestrator.management import base
from orchestrator.management.people import operator, reason_argument, table


class Command(base.Command):
    """``list`` prints ``{items, next_cursor}`` with ``--json``; the others ``{items, errors}``."""

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
            one.add_argument("ids", nargs="+", type=int, metavar="ID")
            reason_argument(one)
        for one in (listed, *(verbs.choices[verb] for verb in ("replay", "discard"))):
            one.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document on stdout")

    def run(self, **options: Any) -> None:
        """Lists or acts."""
        if options["verb"] in (None, "list"):
            self._list(options)
        else:
            self._act(options["verb"], options["ids"], options["reason"])

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


def _filters(parser: CommandParser, **defaults: Any) -> None:
    states = ["any", *map(str, DeadLetterState)]
    parser.add_argument("--state", choices=states, **{"default": "open", **defaults})
    parser.add_argument("--workflow", **defaults)
    parser.add_argument("--step", **defaults)
    parser.add_argument("--limit", type=int, help=f"1 to {MAX_PAGE}, default 50", **{"default": 50, **defaults})
    parser.add_argument("--cursor", help="next_cursor of the page before", **defaults)
