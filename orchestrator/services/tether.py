"""Runs a command that dies with the process that started it: ``tether.py PARENT COMMAND ARGUMENT…``.

The mark is put on here, between fork and exec, where it costs no thread safety, and it survives the exec. Where the
system has no such mark (macOS) the command runs without.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Asks the kernel to send this process a signal when its parent ends. Does nothing where it cannot be asked."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    expected = int(sys.argv[1])
    die_with_parent()
    if os.getppid() != expected:  # it died before it could be asked about
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
