"""The base of every command: ``--json``, exit codes, and errors in one line.

A command overrides :meth:`Command.arguments` and :meth:`Command.run`::

    class Command(base.Command):
        help = "Says where a subject's work stands."

        def arguments(self, parser):
            parser.add_argument("subject")

        def run(self, **options):
            self.emit(answer, text=answer["reply"])

Exit codes: 0 done, 1 refused or not found, 2 bad usage. What a person should read while it works goes to stderr by
:meth:`Command.note`; stdout carries the answer alone. With ``--json`` a refusal is a document too, as the API's errors
are: ``{"error": {"code", "message", "field"?}}``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
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
    #: Whether the answer was printed, so that a refusal after it adds no second document.
    answered = False
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
        self.answered = True
        self.stdout.write(text)

    def note(self, text: str) -> None:
        """Says on stderr what is going on. Without a colour: Django's for notices is the red of errors."""
        self.stderr.write(text, str)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Django's hook: the command's own arguments, its own options, and ``--json``."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if self.json_option:
            parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
            parser.error = self._bad_usage(parser)  # type: ignore[assignment,method-assign]
        return parser

    def _bad_usage(self, parser: CommandParser) -> Callable[[str], Any]:
        """What argparse refuses is known before the options are: ``--json`` is looked for in the words themselves."""
        error = parser.error

        def refuse(message: str) -> Any:
            self.as_json = bool(parser.called_from_command_line) and "--json" in sys.argv[2:]
            self._refuse(message, UsageError(message))
            return error(message)

        return refuse

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's hook."""
        self.arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Django's hook."""
        options.pop("json", None)
        self.run(**options)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Runs the command and turns what a person can cause into one line and an exit code."""
        self.as_json, self.answered = bool(options.get("json")), False
        try:
            answer = super().execute(*args, **options)
            self.stdout.flush()
            return answer
        except CommandError as refused:
            self._refuse(str(refused), refused)
            raise _as_refusal(refused) from refused
        except BrokenPipeError:
            _drop_stdout()
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as failure:
            message = explain_error(failure)
            if message is None:
                raise
            self._refuse(message, failure)
            raise error(message) from failure
        return None

    def _refuse(self, message: str, failure: Exception) -> None:
        """The document of a refusal, where one was asked for and nothing else was printed."""
        if not self.as_json or self.answered:
            return
        usage = isinstance(failure, CommandError) and failure.returncode == 2
        code = getattr(
            failure, "code", "usage" if usage else "refused" if isinstance(failure, CommandError) else "error"
        )
        field = getattr(failure, "field", None)
        self.emit({"error": {"code": code, "message": message, **({"field": field} if field else {})}})
        self.stdout.flush()


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
