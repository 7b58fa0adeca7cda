"""The fault matrix: one run for each fault at each boundary of a workflow, on real servers with real processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from orchestrator.core.errors import Conflict, Invalid
from orchestrator.definitions.publish import publish
from orchestrator.definitions.spec import WorkflowSpec
from orchestrator.engine.artifacts import delete_prefix
from orchestrator.engine.db import caller_connection
from orchestrator.engine.plans import Plan, latest_definition, load_plan
from orchestrator.models import Beat, Definition, Lease
from orchestrator.testing.cases import BASELINE, Maker
from orchestrator.testing.checks import problems_of
from orchestrator.testing.crew import Crew
from orchestrator.testing.disposable import require_disposable
from orchestrator.testing.drive import Driver
from orchestrator.testing.faults import GROUPS, write_plan
from orchestrator.testing.outcome import Case, Outcome

Check = Callable[[Outcome], Any]
#: A run may take so many times what the run without faults took, and so many seconds more.
SLOWER, SPARE = 8, 60.0
FIRST = 300.0


@dataclass
class Matrix:
    """What came of it. ``folder`` holds the ledger and the logs where it was kept."""

    workflow: str
    version: int
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    folder: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether every case ended as it must."""
        return all(outcome.ok for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """``{ok, workflow, version, seconds, cases: [{case, kind, step, shard, ok, state, detail, …}]}``."""
        return {
            "ok": self.ok,
            "workflow": self.workflow,
            "version": self.version,
            "seconds": round(self.seconds, 1),
            "cases": [outcome.as_json() for outcome in self.outcomes],
        }

    def table(self, failures: bool = False) -> str:
        """A line a case: what was injected, where, the result, the run's state and its seconds, and what is wrong."""
        cases = [o.as_json() for o in self.outcomes if not (failures and o.ok)]
        head = ["case", "step", "result", "run", "seconds"]
        lines = [head] + [
            [
                c["case"],
                f"{c['step']} {c['shard']}".strip(),
                "ok" if c["ok"] else "FAILED",
                c["state"],
                "" if c["seconds"] is None else f"{c['seconds']:.1f}",
            ]
            for c in cases
        ]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = []
        for line, case in zip(lines, [None, *cases], strict=True):
            text.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
            if case and not case["ok"]:
                text += [f"    {problem}" for problem in case["detail"].split("; ")] + [f"    run {case['run_id']}"]
        return "\n".join(text)


def run_matrix(
    workflow: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002
    check: Check | None = None,
    *,
    subject: str = "fault-matrix",
    packages: Sequence[str] = (),
    only: Collection[str] = (),
    processes: int = 0,
    timeout: float = 0.0,
    keep: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Matrix:
    """As :func:`orchestrator.testing.fault_matrix`, but answers whatever the result.

    Args:
        keep: the artifacts of the runs, the ledger and the logs stay.
        say: told how far it is.

    Raises:
        Refused: the database is not disposable; nothing was touched.
        NotFound, Invalid, Conflict: no such workflow; a bad argument; the database is in use by others.
    """
    require_disposable("the fault matrix")
    unknown = sorted(set(only) - set(GROUPS))
    if unknown:
        raise Invalid(f"{', '.join(unknown)} is no kind of fault; they are {', '.join(GROUPS)}", field="only")
    if connection.in_atomic_block:
        raise Invalid(
            "worker processes cannot see what an open transaction holds; in pytest mark the test "
            "@pytest.mark.django_db(transaction=True)"
        )
    names = list(packages) or settings.ORCHESTRATOR.workflows
    plan = _plan(workflow, names)
    _nobody_else()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fault-matrix-"))
    count = processes or max(2, min(6, 2 * (os.cpu_count() or 1)))
    file = folder / "plan.json"
    write_plan(file, plan.definition_id, {})
    matrix = Matrix(plan.workflow, plan.version, folder=folder if keep else None)
    try:
        with Crew(file, folder, _queues(), names, count) as crew:
            at_once = 1 if plan.spec.exclusive and plan.spec.exclusive.by == "workflow" else 3 * count
            driver = Driver(plan, crew, folder, subject, dict(input or {}), at_once, say)
            try:
                matrix.outcomes = _phases(driver, plan, only, timeout, say)
            finally:
                driver.close()
        _ask(check, matrix.outcomes)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            for outcome in matrix.outcomes:
                delete_prefix(outcome.run_id)
    matrix.seconds = time.monotonic() - begun
    return matrix


def _phases(
    driver: Driver, plan: Plan, only: Collection[str], timeout: float, say: Callable[[str], None]
) -> list[Outcome]:
    """First the run without faults, which shows the boundaries, then the steps' cases, then those of the undo."""
    say("the run without faults")
    baseline = driver.run([BASELINE], timeout or FIRST)[0]
    baseline.problems += problems_of(baseline, baseline, plan)
    if not baseline.ok:
        baseline.problems.append("nothing was injected: without faults the workflow must end done with this input")
        return [baseline]
    seconds = timeout or SPARE + SLOWER * (baseline.seconds or 0.0)
    maker = Maker(plan, baseline)
    steps = [c for c in maker.of_steps() if not only or c.group in only or c.group == "fail"]
    probes = _judged(driver, steps, seconds, baseline, plan, say, "cases at steps")
    undo = [c for c in maker.of_compensations(probes) if not only or c.group in only]
    judged = probes + _judged(driver, undo, seconds, baseline, plan, say, "cases at compensations")
    return [baseline, *(outcome for outcome in judged if not only or outcome.case.group in only)]


def _judged(
    driver: Driver, cases: list[Case], seconds: float, baseline: Outcome, plan: Plan, say: Callable[[str], None],
    what: str,
) -> list[Outcome]:  # fmt: skip
    say(f"{len(cases)} {what}")
    outcomes = driver.run(cases, seconds)
    for outcome in outcomes:
        outcome.problems += problems_of(outcome, baseline, plan)
    return outcomes


def _ask(check: Check | None, outcomes: list[Outcome]) -> None:
    """Lets the user look at side effects."""
    for outcome in outcomes if check else ():
        assert check
        try:
            said = check(outcome)
        except Exception as problem:
            said = str(problem) or type(problem).__name__
        if said:
            outcome.problems.append(str(said).splitlines()[0] if isinstance(said, str) else f"the check said {said!r}")


def _plan(workflow: str, packages: Sequence[str]) -> Plan:
    """The newest version of the workflow, the packages being published."""
    publish(list(packages))
    conn = caller_connection()
    return load_plan(conn, latest_definition(conn, workflow, None))


def _queues() -> list[str]:
    """Every queue that a published step or compensation uses: handlers may start runs of other workflows."""
    queues: set[str] = set()
    for stored in Definition.objects.values_list("spec", flat=True):
        spec = WorkflowSpec.model_validate(stored)
        queues |= {step.queue for step in spec.steps} | {undo.queue for undo in spec.compensations()}
    return sorted(queues)


def _nobody_else(patience: float = 6.0) -> None:
    """Workers and dispatchers of others would take runs of the matrix and know nothing of its faults."""
    end = time.monotonic() + patience
    while True:
        now = timezone.now()
        workers = Lease.objects.filter(ended_at=None, expires_at__gt=now).count()
        beats = Beat.objects.filter(expires_at__gt=now).count()
        if not workers and not beats:
            return
        if time.monotonic() > end:
            raise Conflict("workers or a dispatcher are running on this database; stop them, or name another database")
        time.sleep(0.3)
