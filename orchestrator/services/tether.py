"""Runs a command that dies with the process that started it: ``tether.py PARENT COMMAND ARGUMENT…``.

The mark is put on here, between fork and exec, where it costs no thread safety, and it survives the exec. Where the
system has no such mark (macOS) the command runs without.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
STATUS = "/proc/{pid}/status"
MAKES = ("make", "gmake")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Asks the kernel to send this process a signal when its parent ends. Does nothing where it cannot be asked."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def make_was_interrupted() -> bool:
    """Whether the make that started this process got SIGINT by itself (``kill -INT``), and now waits for our end.

    Ctrl-C reaches both of us. A SIGINT for make alone it passes on to nobody: its handler, in which the signal is
    blocked, waits for its children. That can only be seen from outside, and only on Linux.
    """
    if "MAKELEVEL" not in os.environ:
        return False
    try:
        with open(STATUS.format(pid=os.getppid()), errors="replace") as status:  # noqa: PTH123 - a quick start
            fields = dict(line.rstrip("\n").split(":", 1) for line in status if ":" in line)
        return fields["Name"].strip() in MAKES and bool(int(fields["SigBlk"], 16) & 1 << signal.SIGINT - 1)
    except (OSError, KeyError, ValueError):
        return False


if __name__ == "__main__":
    expected = int(sys.argv[1])
    die_with_parent()
    if os.getppid() != expected:  # it died before it could be asked about
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
