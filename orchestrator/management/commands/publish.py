"""``manage.py publish [PACKAGE…] [--check] [--json]``: makes definitions known, all of them or none."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from orchestrator.definitions.errors import DefinitionError, PackageError
from orchestrator.definitions.publish import PublishResult, check, publish
from orchestrator.management import base


class Command(base.Command):
    """Exit code 0: published, or published already; 1: refused, nothing stored."""

    help = "Publish the definitions of workflow packages (default: those of ORCHESTRATOR_WORKFLOWS)."

    def arguments(self, parser: CommandParser) -> None:
        """``PACKAGE…`` and ``--check``."""
        parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="importable package, such as shop.workflows")
        parser.add_argument("--check", action="store_true", help="say what would happen and store nothing")

    def run(self, **options: Any) -> None:
        """Publishes or checks; with ``--json`` a refusal is a document too."""
        wanted: list[str] = options["packages"] or settings.ORCHESTRATOR.workflows
        only_check: bool = options["check"]
        if not wanted:
            raise base.UsageError("name a package, or set ORCHESTRATOR_WORKFLOWS")
        try:
            results = check(wanted) if only_check else publish(wanted)
        except (DefinitionError, PackageError) as refused:
            if self.as_json:
                self.emit(_refusal(refused))
            raise base.error(_refused_text(refused)) from refused
        self.emit(
            {"ok": True, "checked": only_check, "definitions": [asdict(result) for result in results]},
            text="\n".join(_line(result, only_check) for result in results),
        )


def _line(result: PublishResult, checked: bool) -> str:
    word = {"new": "can be published" if checked else "published", "unchanged": "unchanged"}[result.status]
    return f"{result.workflow} version {result.version}: {word}"


def _refused_text(refused: DefinitionError | PackageError) -> str:
    if isinstance(refused, PackageError):
        return f"nothing was published: {refused.message}"
    count = len(refused.problems)
    head = f"nothing was published: {'1 problem' if count == 1 else f'{count} problems'}"
    return "\n  ".join([head, *(str(problem) for problem in refused.problems)])


def _refusal(refused: DefinitionError | PackageError) -> dict[str, Any]:
    problems = [asdict(problem) for problem in refused.problems] if isinstance(refused, DefinitionError) else []
    return {"ok": False, "error": {"code": refused.code, "message": refused.message}, "problems": problems}
