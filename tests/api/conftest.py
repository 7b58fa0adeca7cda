"""A caller of the API with a token of each role, and runs in many stages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from orchestrator.core.actor import ENGINE, ROLES
from orchestrator.engine.tokens import create_token
from orchestrator.models import Run
from tests.harness import factory

V1 = "/api/v1"


class Caller:
    """Sends requests as a role; every answer must be strict JSON of the API's one media type."""

    def __init__(self) -> None:
        self.tokens = {role: create_token(role, role, ENGINE) for role in ROLES}
        self.client = Client(raise_request_exception=False)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = "operator",
        raw: bytes | None = None,
        content_type: str = "application/json",
        **headers: str,
    ) -> tuple[int, Any]:
        if role:
            headers.setdefault("HTTP_AUTHORIZATION", f"Bearer {self.tokens[role]}")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        response = self.client.generic(method, V1 + path, data, content_type=content_type, **headers)
        assert response["Content-Type"].startswith("application/json"), (path, response["Content-Type"])
        return response.status_code, strict(response.content)

    def error(self, *args: Any, **kwargs: Any) -> tuple[int, str, str | None]:
        """(status, code, field) of an answer that must be an error."""
        status, body = self(*args, **kwargs)
        assert set(body) == {"error"}, body
        assert set(body["error"]) <= {"code", "message", "field"}
        assert body["error"]["message"]
        return status, body["error"]["code"], body["error"].get("field")


def strict(content: bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(content, parse_constant=refuse) if content else None


@pytest.fixture
def api(db: None) -> Caller:
    return Caller()


@pytest.fixture
def runs(db: None) -> dict[str, Run]:
    """A saved run in each stage, with a subject of its own."""
    return {stage: factory.make(stage, subject=f"vid-{stage}") for stage in factory.STAGES if stage != "wide"}
