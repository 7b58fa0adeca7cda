#!/usr/bin/env python
"""Django's command line. `make run` needs nothing else; see `make help`.

Works with any Python at hand: where the packages are missing it goes on in the project's own `.venv`. Where
DATABASE_URL or REDIS_URL is unset it starts the private server that a command needs.
"""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def use_virtual_environment() -> None:
    """Goes on in `.venv` when this Python is too old or lacks the packages."""
    needed = ("django", "django_rq", "environs", "psycopg", "pydantic")
    if sys.version_info >= (3, 11) and all(importlib.util.find_spec(name) for name in needed):
        return
    folder = os.path.join(HERE, ".venv")
    python = os.path.join(folder, "bin", "python")
    if os.path.exists(python) and os.path.realpath(sys.prefix) != os.path.realpath(folder):
        os.execv(python, [python] + sys.argv)
    sys.exit("error: the packages are not installed for this Python; run: make setup")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
    use_virtual_environment()
    from orchestrator.management.autostart import prepare

    prepare(sys.argv)
    from django.core.management import execute_from_command_line

    from orchestrator.management.errors import explain_error

    try:
        execute_from_command_line(sys.argv)
    except Exception as failure:
        message = explain_error(failure)
        if message is None or "--traceback" in sys.argv:
            raise
        sys.exit("error: " + message)


if __name__ == "__main__":
    main()
