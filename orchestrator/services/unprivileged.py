"""PostgreSQL refuses to run as root. This module finds it a user, and folders which that user can reach.

As an ordinary user there is nothing to do: the server runs as that user, from the virtual environment, with its data
in ``.local``. As root it runs as ``nobody``. Where the project or the virtual environment lies under a folder closed
to others (``/root``), nothing is opened up; binaries and data go to a folder per project under ``/var/lib`` instead.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.services.state import ServicesError


@dataclass(frozen=True)
class Account:
    """Who a server runs as. ``uid`` is ``None`` for the user that we are."""

    uid: int | None = None
    gid: int | None = None

    def popen(self) -> dict[str, Any]:
        """Arguments of ``subprocess`` that change to the account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Gives a file or folder to the account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Ourselves, or ``nobody`` when we are root.

    Raises:
        ServicesError: we are root and there is no such user.
    """
    if os.geteuid() != 0:
        return Account()
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise ServicesError(
            "PostgreSQL does not run as root and this machine has no user 'nobody' to run it as; "
            "run as an ordinary user, or set DATABASE_URL"
        ) from None
    return Account(entry.pw_uid, entry.pw_gid)


def can_enter(account: Account, folder: Path) -> bool:
    """Whether the account can reach the folder."""
    if account.uid is None:
        return True
    return _succeeds(account, ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)])


def can_run(account: Account, binary: Path) -> bool:
    """Whether the account can run the binary, its shared libraries included."""
    return _succeeds(account, [str(binary), "--version"])


def _succeeds(account: Account, command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, cwd="/", timeout=60, check=False, **account.popen())
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def open_home(local: Path) -> Path:
    """A folder of this project's own that every user can enter, made if need be. Only root needs one.

    Raises:
        ServicesError: there is no place for it.
    """
    name = hashlib.sha256(str(local.resolve()).encode()).hexdigest()[:12]
    for parent in (Path("/var/lib/switchyard"), Path(tempfile.gettempdir()) / "switchyard"):
        home = parent / name
        try:
            for folder in (parent, home):
                folder.mkdir(mode=0o755, exist_ok=True)
                if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                    raise PermissionError(f"{folder} is not ours")
                folder.chmod(0o755)
        except OSError:
            continue
        return home
    raise ServicesError("no folder for the private PostgreSQL under /var/lib or the temporary folder; set DATABASE_URL")


def copy_for_all(source: Path, target: Path) -> None:
    """Copies a tree so that every user can read it; whole or not at all."""
    if target.exists():
        return
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
    try:
        shutil.copytree(source, half / "tree", symlinks=True)
        for path in [half / "tree", *(half / "tree").rglob("*")]:
            if not path.is_symlink():
                mode = path.stat().st_mode & 0o777
                path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
        (half / "tree").rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)
