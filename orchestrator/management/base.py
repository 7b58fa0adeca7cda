"""The base of every command: ``--json``, exit codes, and errors in one line.

A command overrides :meth:`Command.arguments` and :meth:`Command.run`::

    class Command(base.Command):
        help = "Says where a subject's work stands."

        def arguments(self, parser):
            parser.add_argument("subject")

        def run(self, **options):
            self.emit(answer, text=answer["reply"])

Exit codes: 0 done, 1 refused or not found, 2 bad usage. What a person should read while it works goes to stderr by
:meth:`Command.note`; stdout carries the answer alone.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError

from orchestrator.management.errors import explain_error


class error(CommandError):  # noqa: N801 - Django prints the class's name before the message: "error: …"
    """A refusal in one line. ``returncode`` is the exit code."""


class UsageError(error):
    """Bad usage that argparse cannot see; exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, returncode=2)


UsageError.__name__ = "error"


class Command(BaseCommand):
    """See the module's text. ``json_option = False`` for a command that prints no answer."""

    json_option = True
    as_json = False
    #: Set it where a command must work without the database, so that Django's checks do not ask for it.
    requires_system_checks: Any = []

    def arguments(self, parser: CommandParser) -> None:
        """Adds the command's own arguments."""

    def run(self, *args: Any, **options: Any) -> None:
        """Does the work; ``options`` are the parsed arguments by name. May raise ``SwitchyardError``."""
        raise NotImplementedError

    def emit(self, answer: Any, text: str | None = None) -> None:
        """Prints the answer: as one JSON document with ``--json``, else ``text`` (without one, indented JSON)."""
        if self.as_json or text is None:
            indent = None if self.as_json else 2
            text = json.dumps(answer, default=_plain, ensure_ascii=False, indent=indent)
        self.stdout.write(text)

    def note(self, text: str) -> None:
        """Says on stderr what is going on. Without a colour: Django's for notices is the red of errors."""
        self.stderr.write(text, str)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Django's hook: the command's own arguments, its own options, and ``--json``."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if self.json_option:
            parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's hook."""
        self.arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Django's hook."""
        options.pop("json", None)
        self.run(**options)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Runs the command and turns what a person can cause into one line and an exit code."""
        self.as_json = bool(options.get("json"))
        try:
            answer = super().execute(*args, **options)
            self.stdout.flush()
            return answer
        except CommandError as refused:
            raise _as_refusal(refused) from refused
        except BrokenPipeError:
            _drop_stdout()
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as failure:
            message = explain_error(failure)
            if message is None:
                raise
            raise error(message) from failure
        return None


def _as_refusal(refused: CommandError) -> CommandError:
    if isinstance(refused, error | SystemCheckError):
        return refused
    return error(*refused.args, returncode=refused.returncode)


def _drop_stdout() -> None:
    """The reader went away (``| head``): the rest of the answer has nowhere to go, and that is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | UUID):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
