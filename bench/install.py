"""The peers' packages: a virtual environment each under ``bench/.venvs``, BullMQ under ``bench/node``.

Nothing of it touches the project's own environment. What is there and current is left alone; a peer that cannot be
installed is left out of the run, with one line that says why.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.plan import Contestant

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
VENVS = HERE / ".venvs"
NODE = HERE / "node"
NODE_FILES = ("package.json", "bench_bullmq.mjs", "bullmq_worker.mjs")
#: Seconds that one installation may take.
LIMIT = 600


class NotInstalled(Exception):
    """A peer cannot take part; the message says why."""


def command(contestant: Contestant) -> list[str]:
    """The program and script of a contestant."""
    if contestant.node:
        return ["node", str(NODE / contestant.script)]
    python = VENVS / contestant.venv / "bin" / "python" if contestant.venv else Path(sys.executable)
    return [str(python), str(PEERS / contestant.script)]


def prepare(contestant: Contestant, say: Callable[[str], None]) -> None:
    """Installs what a contestant needs and lacks.

    Raises:
        NotInstalled: it cannot be.
    """
    if contestant.node:
        _prepare_node(say)
    elif contestant.venv:
        _prepare_venv(contestant.venv, say)


def _prepare_venv(name: str, say: Callable[[str], None]) -> None:
    wanted = PEERS / f"requirements-{name}.txt"
    folder = VENVS / name
    if _is_current(folder, wanted):
        return
    say(f"installing {name} into {folder.relative_to(HERE.parent)}")
    shutil.rmtree(folder, ignore_errors=True)
    VENVS.mkdir(exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--prefer-binary", "-r", str(wanted)])
    _note(folder, wanted)


def _prepare_node(say: Callable[[str], None]) -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        raise NotInstalled("node and npm are not on this machine")
    NODE.mkdir(exist_ok=True)
    for name in NODE_FILES:  # packages are looked for beside the script
        shutil.copyfile(PEERS / name, NODE / name)
    wanted = NODE / "package.json"
    if _is_current(NODE, wanted):
        return
    say(f"installing BullMQ into {NODE.relative_to(HERE.parent)}")
    _run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"], NODE)
    _note(NODE, wanted)


def _is_current(folder: Path, wanted: Path) -> bool:
    mark = folder / ".installed"
    return mark.exists() and mark.read_text() == _digest(wanted)


def _note(folder: Path, wanted: Path) -> None:
    (folder / ".installed").write_text(_digest(wanted))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes() + sys.version.encode()).hexdigest()


def _run(words: list[str], folder: Path = HERE) -> None:
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{Path(words[0]).name} did not end within {LIMIT} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalled(lines[-1] if lines else f"{Path(words[0]).name} ended with code {done.returncode}")
