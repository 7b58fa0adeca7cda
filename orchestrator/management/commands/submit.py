"""``manage.py submit WORKFLOW --subject S``: starts a run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.engine.describe import run_json
from orchestrator.engine.submit import submit_once
from orchestrator.management import base
from orchestrator.management.people import json_object, operator, seconds


class Command(base.Command):
    """With ``--json`` the run as the API answers it."""

    help = "Start a run of a workflow for a subject."

    def arguments(self, parser: CommandParser) -> None:
        """What ``sdk.submit`` takes, as far as it fits on a command line."""
        parser.add_argument("workflow")
        parser.add_argument("--subject", required=True, help="what the run is about, such as the id of a video")
        parser.add_argument(
            "--input", default="{}", metavar="JSON", help="a JSON object: what handlers get as ctx.input"
        )
        parser.add_argument("--key", help="idempotency key: the same key again answers the same run")
        parser.add_argument("--delay", help="start no sooner than this from now, such as 15m")
        parser.add_argument("--deadline", help="for the whole run, such as 2h (default: the definition's)")
        parser.add_argument("--parent", metavar="ID", help="the run that it is a part of")
        parser.add_argument("--after", action="append", metavar="ID", help="a run that must have ended; repeatable")
        parser.add_argument("--lock", metavar="NAME", help="held by each step that names no lock of its own")
        parser.add_argument("--on-lock-conflict", choices=["requeue", "reject", "dead_letter"], help="if it is held")
        parser.add_argument("--workflow-version", type=int, metavar="N", help="a version other than the newest")

    def run(self, **options: Any) -> None:
        """Starts it, or answers the run that the key stands for."""
        for option in ("delay", "deadline"):
            if options[option] is not None:
                seconds(options[option], f"--{option}")
        run_id, made = submit_once(
            operator(),
            workflow=options["workflow"],
            subject_id=options["subject"],
            input=json_object(options["input"], "--input"),
            idempotency_key=options["key"],
            delay=options["delay"],
            deadline=options["deadline"],
            version=options["workflow_version"],
            parent=options["parent"],
            after=options["after"],
            lock=options["lock"],
            on_lock_conflict=options["on_lock_conflict"],
        )
        if not made:
            self.note("this key has been used: here is its run")
        run = run_json(run_id)
        self.emit(run, text=f"{run['id']}  {run['workflow']} v{run['version']}  {run['subject_id']}  {run['state']}")
