"""A place for private servers under test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator import services


@contextmanager
def project_folder() -> Iterator[Path]:
    """A folder that every user can enter, with an empty ``.local``; servers in it are stopped at the end.

    Not pytest's own: each session closes that one to others, and as root the server runs as nobody.
    """
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="switchyard-test-")))
    folder.chmod(0o755)
    local = folder / ".local"
    local.mkdir(mode=0o755)
    try:
        yield local
    finally:
        services.stop(local)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fresh_local() -> Iterator[Path]:
    """A ``.local`` for one test."""
    with project_folder() as local:
        yield local
