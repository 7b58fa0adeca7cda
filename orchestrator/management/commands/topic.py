"""``manage.py topic NAME [LIMIT]``: a cluster-wide limit."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.engine import limits, topics
from orchestrator.management import base
from orchestrator.management.people import facts, operator


class Command(base.Command):
    """With ``--json`` the topic as ``GET /topics/{name}`` answers it."""

    help = (
        "Show a topic's cluster-wide limit, or set it: a number, 0 to pause, none for unlimited, "
        "default to go back to what the settings or the definition say."
    )

    def arguments(self, parser: CommandParser) -> None:
        """``NAME``, ``LIMIT``."""
        parser.add_argument("name")
        parser.add_argument("limit", nargs="?", help="a whole number from 0, none, or default")
        parser.add_argument("--reason", default="", help="why; kept in the audit trail")

    def run(self, **options: Any) -> None:
        """Sets it if a limit is given, and prints it."""
        name, text = options["name"], options["limit"]
        if text is not None:
            limits.set_topic_limit(name, _limit(text), operator(), options["reason"])
        topic = topics.topic(name)
        limit = "unlimited" if topic["limit"] is None else topic["limit"]
        pairs = [("topic", name), ("limit", limit), ("from", _origin(topic)), ("definition", topic["defined"]),
                 ("settings", topic["configured"]), ("running", topic["running"]),
                 ("waiting", topic["waiting"])]  # fmt: skip
        self.emit(topic, text=facts(pairs))


def _limit(text: str) -> limits.Limit:
    if text.lower() in ("none", "unlimited"):
        return None
    if text.lower() == limits.DEFAULT:
        return limits.DEFAULT
    if not (text.isascii() and text.isdigit()):
        raise base.UsageError(f"LIMIT {text!r} is not a whole number from 0, none or default")
    return int(text)


def _origin(topic: dict[str, Any]) -> str:
    told = {"runtime": f"set by {topic['set_by']}", "settings": "ORCHESTRATOR_TOPIC_LIMITS", "definition": "definition"}
    return told.get(topic["origin"], "nobody has set one")
