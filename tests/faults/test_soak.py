"""The soak, two minutes of it in the normal tests; SOAK_MINUTES (default 30) of it in ``make test-long``."""

from __future__ import annotations

import os
import random

import pytest

from tests.faults.soak import Soak

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))


def soak(world, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("SOAK_SEED", random.randrange(10**6)))
    world.live.publish("tests.workflows.soak")
    it = Soak(world, seed)
    it.go(seconds)
    it.settle(120)
    problems = it.problems()
    with capsys.disabled():
        print(f"\nsoak of {seconds:.0f} s, SOAK_SEED={seed}: {it.report()}")
    assert not problems, f"SOAK_SEED={seed}: {len(problems)} problems\n" + "\n".join(problems[:30])
    assert it.faults.total() > seconds / 5, "too quiet to prove anything"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_minutes_of_faults(world, capsys):
    soak(world, 120, capsys)


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_a_long_soak(world, capsys):
    soak(world, MINUTES * 60, capsys)
