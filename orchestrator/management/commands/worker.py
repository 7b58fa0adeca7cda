"""`manage.py worker QUEUE… [--processes N]`: serves queues until stopped."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from orchestrator.definitions import registry
from orchestrator.definitions.fields import DOTTED, DOTTED_HINT
from orchestrator.management import base
from orchestrator.testing import injection
from orchestrator.transport.health import eviction_warning, ping
from orchestrator.transport.pool import Pool


class Command(base.Command):
    """Starts worker processes under a supervisor (see ``transport.pool``)."""

    help = "Runs steps from the given queues until stopped. SIGTERM: running steps finish; a second one ends them."
    json_option = False

    def arguments(self, parser: CommandParser) -> None:
        """QUEUE… and --processes."""
        parser.add_argument("queues", nargs="+", metavar="QUEUE", help="queues to serve, the first before the others")
        parser.add_argument("--processes", type=int, default=1, help="worker processes (default 1)")
        parser.add_argument("--name", help="name shown on the pages; default host and process id")

    def run(self, *args: Any, **options: Any) -> None:
        """Serves until SIGTERM or SIGINT."""
        if options["processes"] < 1:
            raise base.UsageError("--processes must be 1 or more")
        for queue in options["queues"]:
            if not DOTTED.fullmatch(queue):
                raise base.UsageError(f"QUEUE {queue[:100]!r} is not a queue's name: {DOTTED_HINT}")
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        if injection.install_if_asked():
            self.note("faults are injected on purpose: this worker serves a fault matrix")
        if problem := ping():
            raise base.error(f"cannot reach Redis: {problem}; check REDIS_URL, or unset it to use the private server")
        if warning := eviction_warning():
            logging.getLogger("switchyard").warning(warning)
        registry.load_packages(settings.ORCHESTRATOR.workflows)
        self.note(f"serving {', '.join(options['queues'])} with {options['processes']} processes; Ctrl-C stops")
        Pool(options["queues"], options["processes"], options["name"]).run()
