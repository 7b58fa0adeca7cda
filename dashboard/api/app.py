"""The API's parts put together."""

from __future__ import annotations

from ninja import NinjaAPI

from dashboard.api import bulk, dead_letters, errors, limits, runs, steps
from dashboard.api.body import StrictParser

api = NinjaAPI(
    title="Switchyard",
    version="1",
    description="Start, watch and steer runs. Send Authorization: Bearer TOKEN; every error is "
    '{"error": {"code", "message", "field"?}}.',
    docs_url=None,
    parser=StrictParser(),
    urls_namespace="api",
)
errors.install(api)
# Calls on many runs come before those on one, whose path would take "retry" for an id.
api.add_router("", bulk.router)
api.add_router("", runs.router)
api.add_router("", steps.router)
api.add_router("", dead_letters.router)
api.add_router("", limits.router)
