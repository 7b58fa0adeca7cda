"""The processes of a fault matrix: one dispatcher and a supervisor with worker processes, as in production."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from orchestrator.core.errors import SwitchyardError
from orchestrator.services import PROJECT
from orchestrator.services.supervisor import TETHER
from orchestrator.testing import faults
from orchestrator.testing.disposable import database_url

#: Shorter than in production, so that a case takes a second and not a minute; a variable that is set stays as it is.
TIMINGS = {
    "ORCHESTRATOR_LEASE_SECONDS": "5",
    "ORCHESTRATOR_SWEEP_SECONDS": "0.5",
    "ORCHESTRATOR_CANCEL_GRACE_SECONDS": "3",
    "LOG_LEVEL": "WARNING",
}


class CrewLost(SwitchyardError):
    """A process of the matrix ended by itself; the message holds the last lines that it said."""

    code = "crew_lost"


@dataclass
class Crew:
    """Starts the processes on entering, ends all of them on leaving. Logs go to ``folder``."""

    plan: Path
    folder: Path
    queues: Sequence[str]
    packages: Sequence[str]
    processes: int
    _running: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    def __enter__(self) -> Crew:
        self._start("dispatcher", "dispatcher")
        self._start("worker", "worker", *self.queues, "--processes", str(self.processes))
        return self

    def __exit__(self, *_: object) -> None:
        for _name, process in self._running:
            process.terminate()
        end = time.monotonic() + 5
        for _name, process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.01, end - time.monotonic()))
            _kill_session(process.pid)
            process.wait()

    def check(self) -> None:
        """Raises: CrewLost: one of them has ended."""
        for name, process in self._running:
            if process.poll() is not None:
                raise CrewLost(
                    f"the {name} of the fault matrix ended with code {process.returncode}:\n{self.tail(name)}"
                )

    def tail(self, name: str, lines: int = 20) -> str:
        """The last lines that a process said."""
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    str(TETHER),
                    str(os.getpid()),
                    sys.executable,
                    str(PROJECT / "manage.py"),
                    *command,
                ],
                cwd=PROJECT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append((name, process))

    def _environment(self) -> dict[str, str]:
        conf = settings.ORCHESTRATOR
        return {
            **TIMINGS,
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "ARTIFACTS_URL": conf.artifacts_url or str(settings.LOCAL_DIR / "artifacts"),
            "ORCHESTRATOR_WORKFLOWS": ":".join(self.packages),
            # A killed process must cost the run of its own case and no other.
            "ORCHESTRATOR_MAX_BATCH": "1",
            faults.VARIABLE: str(self.plan),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONUNBUFFERED": "1",
        }


def _kill_session(pid: int) -> None:
    """The process and all below it."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
