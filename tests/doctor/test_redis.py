"""Redis that may evict, and Redis that is away."""

from __future__ import annotations

import pytest

from orchestrator.engine.doctor import Scope
from orchestrator.transport import health


class Says:
    """A Redis that answers INFO so."""

    def __init__(self, memory: dict[str, object]) -> None:
        self._memory = memory

    def info(self, section: str) -> dict[str, object]:
        return self._memory

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("memory", "warns"),
    [
        ({"maxmemory": 0, "maxmemory_policy": "allkeys-lru"}, False),
        ({"maxmemory": 1_000_000, "maxmemory_policy": "noeviction"}, False),
        ({"maxmemory": 1_000_000, "maxmemory_policy": "allkeys-lru"}, True),
        ({"maxmemory": 1_000_000, "maxmemory_policy": "volatile-ttl"}, True),
        ({}, False),
    ],
)
def test_eviction_warning(monkeypatch, memory, warns):
    monkeypatch.setattr(health.Redis, "from_url", lambda url, **more: Says(memory))
    text = health.eviction_warning()
    assert bool(text) is warns
    if text:
        assert str(memory["maxmemory_policy"]) in text
        assert "noeviction" in text


def test_no_warning_when_redis_is_away(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert health.eviction_warning(0.2) is None


def test_the_doctor_says_that_redis_is_away(ward, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    found = ward.examine()
    assert [b.invariant for b in found.broken] == ["redis"]
    assert "tickets" in found.unchecked


def test_the_doctor_passes_the_warning_on(ward, monkeypatch):
    from orchestrator.transport import doctor

    monkeypatch.setattr(doctor, "eviction_warning", lambda: "it may evict")
    found = ward.examine(Scope.quick(), quick=True)
    assert (found.ok, found.warnings) == (True, ["it may evict"])
