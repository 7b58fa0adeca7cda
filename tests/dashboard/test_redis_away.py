"""C98: every page, and every read of the API, while Redis is stopped or takes connections and says nothing."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from tests.dashboard.test_roles_everywhere import Site

pytestmark = pytest.mark.django_db


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", pytest.param("silent", marks=pytest.mark.long)])
def test_every_address_answers(settings: Any, how: str) -> None:
    """What is about Redis alone says that it is away; everything else is made from the record."""
    site = Site()
    client, bad, told = site.visitor("admin"), [], set()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1] if how == 'silent' else 1}/0"
        settings.REDIS_URL = url
        settings.RQ_QUEUES = {name: {**queue, "URL": url} for name, queue in settings.RQ_QUEUES.items()}
        for address in site.addresses:
            began = time.monotonic()
            answer = client.get(address.path)
            took = time.monotonic() - began
            if answer.status_code == 503:
                told.add("rq pages" if address.name.startswith("django_rq:") else address.name)
            elif answer.status_code >= 500 or took > 8:  # two seconds, on a machine that is not busy
                bad.append(f"{address.path} ({address.name}): {answer.status_code} after {took:.1f} s")
    assert bad == []
    assert told == {"readyz", "rq pages"}
