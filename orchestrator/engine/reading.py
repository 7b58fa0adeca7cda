"""Compiled definitions for everything that only reads: pages, API, command line."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection

from orchestrator.engine.plans import Plan, load_plan, load_plans


def plan(definition_id: int) -> Plan:
    """The compiled definition, over Django's connection. Kept for the life of the process.

    Raises:
        NotFound: there is no such definition.
    """
    connection.ensure_connection()
    return load_plan(connection.connection, definition_id)


def plans(definition_ids: Iterable[int]) -> dict[int, Plan]:
    """Several of them by id, those that there are; one query at most."""
    connection.ensure_connection()
    return load_plans(connection.connection, definition_ids)
