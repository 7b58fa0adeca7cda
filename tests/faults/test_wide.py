"""The widest fan-out there is: time grows with the shards, memory does not, and others are not held up."""

from __future__ import annotations

import threading
import time
from typing import Any

import psutil
import pytest

from orchestrator.models import FanOut, Step

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
_MB = 2**20


class Scale:
    """Weighs processes twice a second, each by its own memory (what it shares with its parent is not counted twice)."""

    def __init__(self, roots: list[int]) -> None:
        self._roots = roots
        self._stop = threading.Event()
        self.most: dict[str, float] = {}

    def __enter__(self) -> Scale:
        self._thread = threading.Thread(target=self._weigh, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _weigh(self) -> None:
        while not self._stop.wait(0.5):
            for name, root in zip(("worker", "dispatcher"), self._roots, strict=True):
                sizes = [0.0]
                for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
                    try:
                        sizes.append(process.memory_info().rss / _MB)
                    except psutil.NoSuchProcess:
                        continue
                self.most[name] = max(self.most.get(name, 0.0), *sizes)


def go(world: Any, shards: int, roots: list[int]) -> tuple[float, float, dict[str, float]]:
    """Seconds that a fan-out took, seconds of a small run started in its middle, and the most memory in MB."""
    with Scale(roots) as scale:
        began = time.monotonic()
        run_id = world.submit("noop-wide", {"l": "numbers"}, input={"n": shards})
        world.until(lambda: FanOut.objects.filter(run=run_id, done__gt=shards // 3).exists(), 600)
        asked = time.monotonic()
        world.finish(world.submit("noop-chain"), timeout=60)
        small = time.monotonic() - asked
        (run,) = world.finish(run_id, timeout=900)
        took = time.monotonic() - began
    assert run.state == "done" and world.ledger.calls("j", run_id) == 1
    assert FanOut.objects.values_list("total", "open", "done").get(run=run) == (shards, 0, shards)
    assert not Step.objects.filter(run=run).exclude(state="done", attempt=1).exists()
    return took, small, scale.most


def test_a_hundred_thousand_shards_against_ten_thousand(world):
    """C11."""
    worker = world.start(2)
    dispatcher = world.live.processes[0]
    world.finish(world.submit("noop-wide", {"l": "numbers"}, input={"n": 1000}))
    figures = {n: go(world, n, [worker.pid, dispatcher.pid]) for n in (10_000, 100_000)}
    for n, (took, small, most) in figures.items():
        weight = ", ".join(f"{name} {mb:.0f} MB" for name, mb in most.items())
        print(f"\n{n:,} shards: {took:.1f} s, {n / took:,.0f}/s; a small run beside it {small:.2f} s; {weight}")
    (few, _, before), (many, small, after) = figures[10_000], figures[100_000]
    assert many <= 11 * few
    assert small < 15
    for name, weight in after.items():
        assert weight <= 1.2 * before[name], f"{name} grew from {before[name]:.0f} to {weight:.0f} MB"
