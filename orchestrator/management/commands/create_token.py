"""``manage.py create_token NAME --role ROLE``: a bearer token of the API."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.actor import ROLES
from orchestrator.engine.tokens import create_token
from orchestrator.management import base
from orchestrator.management.people import operator


class Command(base.Command):
    """Prints the token, once; with ``--json`` ``{name, role, token}``."""

    help = "Make an API token. It is shown once; only its hash is kept."

    def arguments(self, parser: CommandParser) -> None:
        """``NAME``, ``--role``."""
        parser.add_argument("name")
        parser.add_argument("--role", required=True, choices=ROLES)

    def run(self, **options: Any) -> None:
        """Makes it."""
        token = create_token(options["name"], options["role"], operator())
        self.note("keep it safe, it is not shown again:")
        self.emit({"name": options["name"], "role": options["role"], "token": token}, text=token)
