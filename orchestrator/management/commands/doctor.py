"""``manage.py doctor [--repair] [--run ID]``: whether the record agrees with itself, and with Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.ids import parse_run_id
from orchestrator.engine.db import connect
from orchestrator.engine.describe import run_json
from orchestrator.engine.doctor import Examination, Scope
from orchestrator.engine.doctor.keep import Repaired, keep, repair
from orchestrator.management import base
from orchestrator.management.people import operator, table
from orchestrator.transport import doctor

#: Items that a repair takes at a time.
_MANY = 2_000


class Command(base.Command):
    """With ``--json``: ``{ok, broken: [{invariant, id, detail}], repaired, warnings, unchecked}``."""

    help = "Check every invariant of the record; exit code 1 when one is broken, also after --repair."

    def arguments(self, parser: CommandParser) -> None:
        """``--repair``, ``--run``, ``--all``."""
        parser.add_argument("--repair", action="store_true", help="mend what can be mended, with an audit record each")
        parser.add_argument("--run", dest="only", metavar="ID", help="look at this run alone")
        parser.add_argument("--all", action="store_true", help="look also at runs that ended more than a week ago")

    def run(self, **options: Any) -> None:
        """Looks, mends if asked to, prints, and refuses where something stays broken."""
        scope = _scope(options)
        with connect("switchyard doctor") as conn:
            repaired: list[Repaired] = []
            if options["repair"]:
                many = replace(scope, limit=_MANY)
                found, repaired = repair(conn, lambda: doctor.examine(conn, many), operator())
            else:
                found = doctor.examine(conn, scope)
            if not scope.run:
                keep(conn, found, operator().name)
        for line in [*found.warnings, *(f"{name}: took too long and was not looked at" for name in found.unchecked)]:
            self.note(line)
        self.emit(_answer(found, repaired), text=_text(found, repaired))
        if not found.ok:
            raise base.error(_refusal(found, bool(options["repair"])))


def _scope(options: dict[str, Any]) -> Scope:
    if options["only"] is None:
        return Scope.everything() if options["all"] else Scope()
    if options["all"]:
        raise base.UsageError("--run looks at one run, --all at every one; give one of them")
    found = parse_run_id(options["only"])
    run_json(found)  # says so where there is no such run
    return Scope(run=found)


def _answer(found: Examination, repaired: list[Repaired]) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "broken": [broken.as_json() for broken in found.broken],
        "repaired": [item.as_json() for item in repaired],
        "warnings": found.warnings,
        "unchecked": found.unchecked,
    }


def _text(found: Examination, repaired: list[Repaired]) -> str:
    parts = []
    if repaired:
        rows = [(item.broken.invariant, item.broken.id, item.did) for item in repaired]
        parts.append(table(("repaired", "id", "what was done"), rows))
    if found.ok:
        parts.append(f"ok: {len(found.checked)} invariants hold")
    else:
        rows = [(broken.invariant, broken.id, broken.detail) for broken in found.broken]
        parts.append(table(("broken", "id", "detail"), rows))
    return "\n\n".join(parts)


def _refusal(found: Examination, tried: bool) -> str:
    names = ", ".join(sorted({broken.invariant for broken in found.broken}))
    if tried:
        return f"still broken: {names}. These cannot be mended by --repair; docs/operating.md says what to do"
    if any(broken.repair for broken in found.broken):
        return f"broken: {names}. `doctor --repair` mends what can be mended"
    return f"broken: {names}. docs/operating.md says what to do"
