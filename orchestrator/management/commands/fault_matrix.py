"""``manage.py fault_matrix WORKFLOW``: every fault at every step boundary, with real processes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandParser
from django.db import connection

from orchestrator.management import base
from orchestrator.management.people import json_object
from orchestrator.testing.disposable import require_disposable, scratch_database
from orchestrator.testing.faults import GROUPS
from orchestrator.testing.matrix import run_matrix
from orchestrator.transport.spare import spare_database


class Command(base.Command):
    """Exit code 0: every case ended as it must; 1: one did not, or the database is not disposable."""

    help = (
        "Run a workflow once for each fault at each step boundary (failures, killed workers, duplicates, cancels) with "
        "real worker processes, and check the record and the side effects. Without DATABASE_URL in a scratch database "
        "that is made and dropped; with it only in a database that is disposable: its name has test, disposable or "
        "scratch as a word, or ORCHESTRATOR_DISPOSABLE=1."
    )

    def arguments(self, parser: CommandParser) -> None:
        """WORKFLOW and what its runs get."""
        parser.add_argument("workflow", help="of a package in ORCHESTRATOR_WORKFLOWS")
        parser.add_argument("--input", default="{}", metavar="JSON", help="input of every run, a JSON object")
        parser.add_argument(
            "--subject",
            default="fault-matrix",
            help="of the runs; the case's number follows, or replaces {case}",
        )
        parser.add_argument(
            "--only",
            action="append",
            default=[],
            choices=GROUPS,
            metavar="KIND",
            help=f"{', '.join(GROUPS)}; repeatable",
        )
        parser.add_argument(
            "--check", metavar="MODULE:FUNCTION", help="called with the outcome of each run; raises where it is wrong"
        )
        parser.add_argument("--processes", type=int, default=0, help="worker processes (default: by the processors)")
        parser.add_argument("--timeout", type=float, default=0.0, help="seconds that one run may take")
        parser.add_argument("--keep", action="store_true", help="keep the scratch database, the artifacts and the logs")

    def run(self, **options: Any) -> None:
        """Runs it here, or in a scratch database beside the private one."""
        json_object(options["input"], "--input")
        check = _check(options["check"])
        if settings.DATABASE_IS_PRIVATE:
            raise SystemExit(self._elsewhere(options["keep"]))
        require_disposable("the fault matrix")
        if "workflow_runs" not in connection.introspection.table_names():
            self.note("making the tables")
            call_command("migrate", verbosity=0)
        matrix = run_matrix(
            options["workflow"],
            json_object(options["input"], "--input"),
            check,
            subject=options["subject"],
            only=options["only"],
            processes=options["processes"],
            timeout=options["timeout"],
            keep=options["keep"],
            say=self.note,
        )
        bad = sum(not outcome.ok for outcome in matrix.outcomes)
        ended = f"{len(matrix.outcomes)} cases, {bad} failed, {matrix.seconds:.0f} s"
        self.emit(matrix.as_json(), text=f"{matrix.table()}\n{ended}")
        if matrix.folder:
            self.note(f"ledger and logs are in {matrix.folder}")
        if bad:
            raise base.error(f"{bad} of {len(matrix.outcomes)} cases of {matrix.workflow} failed")

    def _elsewhere(self, keep: bool) -> int:
        """The same command in a database of its own, so that the one of ``make run`` is not touched; its exit code."""
        with scratch_database(keep) as database, spare_database(settings.REDIS_URL) as redis:
            self.note(f"in a scratch database{': ' + database if keep else ''}")
            connection.close()
            environment = {**os.environ, "DATABASE_URL": database, "REDIS_URL": redis}
            return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def _check(name: str | None) -> Callable[..., Any] | None:
    if not name:
        return None
    module, _, function = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as problem:
        raise base.UsageError(f"--check {name}: {problem}; write it like shop.checks:after_run") from None
    return found
