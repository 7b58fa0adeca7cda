"""Starting runs: keys, rollbacks, savepoints, batches."""

from __future__ import annotations

import pytest

from orchestrator.engine.submit import submit_many
from tests.engine.racing import claim


@pytest.mark.parametrize("closers", [2, 3])
def test_the_last_shards_closed_at_once_never_lose_the_join(kit, closers):
    runs = submit_many([{"workflow": "kit-strict", "subject_id": f"s{i}"} for i in range(200)])
    rows = claim(kit.worker.conn, kit.worker.holder, *[(run, "f", 3) for run in runs])
from tests.harness.races import claim



