"""Compiled definitions for everything that only reads: pages, API, command line."""

from __future__ import annotations

from django.db import connection

from orchestrator.engine.plans import Plan, load_plan


def plan(definition_id: int) -> Plan:
    """The compiled definition, over Django's connection. Kept for the life of the process.

    Raises:
        NotFound: there is no such definition.
    """
    connection.ensure_connection()
    return load_plan(connection.connection, definition_id)
