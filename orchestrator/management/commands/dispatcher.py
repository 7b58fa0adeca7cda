"""`manage.py dispatcher`: publishes tickets, fires what is due, recovers what was lost."""

from __future__ import annotations

import logging
from typing import Any

from orchestrator import alerts
from orchestrator.management import base
from orchestrator.transport.dispatcher import Dispatcher
from orchestrator.transport.health import eviction_warning


class Command(base.Command):
    """Runs a dispatcher. Several may run: one leads, the others stand by."""

    help = "Publishes tickets, fires what is due, recovers what was lost; several may run, one leads."
    json_option = False

    def run(self, *args: Any, **options: Any) -> None:
        """Serves until SIGTERM or SIGINT."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        if warning := eviction_warning():
            logging.getLogger("switchyard").warning(warning)
        Dispatcher(background=[alerts.send_due]).run()
