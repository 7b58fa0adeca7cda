"""Children are kept alive, stopped together, and die with a supervisor that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness.processes import PROJECT
from tests.harness.wait import wait_until

CHILD = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()} '); print('up', flush=True); time.sleep(60)"
PROGRAM = """
import sys
from orchestrator.services.supervisor import Child, Supervisor
folder = sys.argv[1]
def child(name, code):
    return Child(name, [sys.executable, "-c", code, f"{folder}/{name}"])
Supervisor([child("first", %(child)r), child("second", %(second)r)], grace=1).run()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + CHILD
BRIEF = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()} ')"


class Supervised:
    """A supervisor in a process of its own, with two children."""

    def __init__(self, folder: Path, second: str = CHILD) -> None:
        self.folder = folder
        program = PROGRAM % {"child": CHILD, "second": second}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
        )

    def pids(self, name: str) -> list[int]:
        """Every pid that the child of this name has had."""
        path = self.folder / name
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def wait_for(self, name: str, starts: int) -> int:
        """Waits for the child's so-many-th start; its pid."""
        return wait_until(lambda: pids[starts - 1] if len(pids := self.pids(name)) >= starts else 0, 15)


@pytest.fixture
def supervised(tmp_path: Path, request: pytest.FixtureRequest):
    it = Supervised(tmp_path, getattr(request, "param", CHILD))
    yield it
    it.process.kill()
    it.process.communicate()


def test_a_child_that_dies_is_started_again(supervised: Supervised) -> None:
    other = supervised.wait_for("second", 1)
    os.kill(supervised.wait_for("first", 1), signal.SIGKILL)
    supervised.wait_for("first", 2)
    assert psutil.pid_exists(other)
    assert supervised.pids("second") == [other]


@pytest.mark.parametrize("supervised", [BRIEF], indirect=True)
def test_one_that_ends_with_code_0_is_started_again_more_and_more_slowly(supervised: Supervised) -> None:
    supervised.wait_for("second", 3)
    supervised.process.terminate()
    said, _ = supervised.process.communicate(timeout=10)
    assert "second | ended with code 0; starting again in 0.5 s" in said
    assert "second | ended with code 0; starting again in 1 s" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all(supervised: Supervised, number: int) -> None:
    pids = [supervised.wait_for(name, 1) for name in ("first", "second")]
    supervised.process.send_signal(number)
    said, _ = supervised.process.communicate(timeout=10)
    assert supervised.process.returncode == 0
    assert "first  | up" in said
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize("supervised", [STUBBORN], indirect=True)
def test_one_that_does_not_stop_is_killed(supervised: Supervised) -> None:
    pid = supervised.wait_for("second", 1)
    supervised.process.terminate()
    said, _ = supervised.process.communicate(timeout=10)
    assert "second | did not stop within 1 s; killed" in said
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel must know PR_SET_PDEATHSIG")
def test_children_die_with_a_supervisor_that_is_killed(supervised: Supervised) -> None:
    pids = [supervised.wait_for(name, 1) for name in ("first", "second")]
    supervised.process.kill()
    wait_until(lambda: not any(psutil.pid_exists(pid) and _lives(pid) for pid in pids), 5)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


UNDER_MAKE = """
import time
from orchestrator.services.tether import make_was_interrupted
print("before:", make_was_interrupted(), flush=True)
end = time.monotonic() + 30
while not make_was_interrupted() and time.monotonic() < end:
    time.sleep(0.05)
print("after:", make_was_interrupted(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the signals of another process")
def test_a_sigint_for_make_alone_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(UNDER_MAKE)
    (tmp_path / "Makefile").write_text(f"run:\n\t@exec {sys.executable} program.py\n")
    make = subprocess.Popen(
        ["make", "run"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PROJECT)}, stdout=subprocess.PIPE, text=True
    )
    assert make.stdout is not None
    assert make.stdout.readline() == "before: False\n"
    os.kill(make.pid, signal.SIGINT)
    said, _ = make.communicate(timeout=40)
    assert said == "after: True\n"
