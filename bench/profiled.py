"""``manage.py`` with cProfile around the work of the dispatcher and of each worker process.

The profiles are written to the folder ``BENCH_PROFILES`` when the processes end.
"""

from __future__ import annotations

import cProfile
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path[0] = str(PROJECT)


def profiled(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose every call writes a profile at its end."""

    def call(*args: Any, **kwargs: Any) -> Any:
        profile = cProfile.Profile()
        try:
            return profile.runcall(function, *args, **kwargs)
        finally:
            profile.dump_stats(Path(os.environ["BENCH_PROFILES"]) / f"{kind}-{os.getpid()}.prof")

    return call


def main() -> None:
    """Runs one command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
    import django

    django.setup()
    from django.core.management import execute_from_command_line

    from orchestrator.transport.dispatcher import Dispatcher
    from orchestrator.transport.worker import TicketWorker

    TicketWorker.work = profiled("worker", TicketWorker.work)
    Dispatcher.run = profiled("dispatcher", Dispatcher.run)  # type: ignore[method-assign]
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
