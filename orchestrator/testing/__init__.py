"""Tests of workflows: :func:`fake_context` for one handler alone, :func:`fault_matrix` for a whole workflow.

The first needs nothing; the second runs real worker processes on a real database that may be thrown away. See
docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.testing.fake import FakeContext, fake_context

if TYPE_CHECKING:
    from orchestrator.testing.matrix import Matrix
    from orchestrator.testing.outcome import Outcome

__all__ = ["FakeContext", "fake_context", "fault_matrix"]


def fault_matrix(
    workflow: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the SDK's word
    ledger: Callable[[Outcome], Any] | None = None,
    *,
    subject: str = "fault-matrix",
    packages: Sequence[str] = (),
    only: Collection[str] = (),
    processes: int = 0,
    timeout: float = 0.0,
) -> Matrix:
    """Runs a workflow once for every fault at every step boundary, with real processes, and checks what came of it.

    For pytest: with ``@pytest.mark.django_db(transaction=True)``, so that worker processes see what is committed.

    Args:
        workflow: name of a published definition, or of one in ``packages``.
        input: of every run; the workflow must end ``done`` with it when nothing is injected.
        ledger: called with the :class:`~orchestrator.testing.outcome.Outcome` of every run that has ended, to look at
            side effects of your own. What it raises, or a text that it returns, makes that case fail.
        subject: of the runs, with the number of the case behind it, or in the place of ``{case}``.
        packages: workflow packages to publish and load; by default those of ``ORCHESTRATOR_WORKFLOWS``.
        only: kinds of faults: ``fail``, ``retry``, ``kill``, ``duplicate``, ``cancel``; by default all.
        processes: worker processes; 0: as many as fit the machine.
        timeout: seconds that a run may take; 0: as the run without faults tells.

    Raises:
        AssertionError: a case failed; the message is the table of those that did.
        Refused: the database is not disposable. Nothing was touched.
    """
    from orchestrator.testing.matrix import run_matrix

    matrix = run_matrix(
        workflow, input, ledger, subject=subject, packages=packages, only=only, processes=processes, timeout=timeout
    )
    if not matrix.ok:
        raise AssertionError(f"the fault matrix of {workflow} has failures\n{matrix.table(failures=True)}")
    return matrix
