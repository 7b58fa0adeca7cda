"""The API's parts put together."""

from __future__ import annotations

from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from dashboard.api import bulk, dead_letters, errors, limits, runs, steps
from dashboard.api.body import StrictParser

_ALWAYS = {"401": "No token, or one that is not known.", "403": "The role does not allow it."}
_WITH_BODY = {
    "400": "The body is not JSON.",
    "413": "The body is over 1 MB.",
    "415": "The body is of another content type.",
}


class _Api(NinjaAPI):
    """Adds to each call of the document the refusals that no call has to declare."""

    def get_openapi_schema(self, **kwargs: Any) -> OpenAPISchema:
        """See the class."""
        schema = super().get_openapi_schema(**kwargs)
        error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        for methods in schema["paths"].values():
            for call in methods.values():
                for status, text in (_ALWAYS | (_WITH_BODY if "requestBody" in call else {})).items():
                    call["responses"].setdefault(status, {"description": text, "content": error})
        return schema


api = _Api(
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
