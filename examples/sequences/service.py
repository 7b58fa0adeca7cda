"""Stands for a service elsewhere. Files in the folder for temporary files make it slow or let it fail.

With ``SUBJECT.down`` there it does not answer for that subject; with ``SUBJECT.slow`` it takes its time.
"""

from __future__ import annotations

import fcntl
import tempfile
import time
from pathlib import Path


def call(subject: str) -> str:
    """Answers, once the file that makes it slow is gone.

    Raises:
        ConnectionError: the file that lets it fail is there.
    """
    folder, name = Path(tempfile.gettempdir()), subject.replace("/", "-")
    if (folder / f"{name}.down").exists():
        raise ConnectionError(f"the service does not answer for {subject}")
    while (folder / f"{name}.slow").exists():
        time.sleep(0.02)
    return f"answer for {subject}"


def recognise(image: str) -> str:
    """The text of a picture, from a service that takes one call at a time from the whole fleet.

    Raises:
        ConnectionRefusedError: it is at work for another caller.
    """
    with (Path(tempfile.gettempdir()) / "ocr.busy").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConnectionRefusedError("one call at a time, please") from None
        time.sleep(0.05)
        return f"text of {image}"
