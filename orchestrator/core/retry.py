"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable


def backoff_delay(
    failures: int,
    *,
    first: float,
    factor: float,
    maximum: float,
    jitter: bool,
    rand: Callable[[], float] = random.random,
) -> float:
    """Seconds to wait after the ``failures``-th failed attempt (1 or more).

    Grows from ``first`` by ``factor`` up to ``maximum``. Jitter takes off up to a fifth, so that what failed together
    does not come back together, and never adds: a wait is at most what the definition says.
    """
    try:
        wait = first * factor ** (failures - 1)
    except OverflowError:
        wait = maximum
    wait = min(wait, maximum)
    return wait * (1 - 0.2 * rand()) if jitter else wait
