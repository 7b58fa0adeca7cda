"""Every page at three thousand runs and at a hundred thousand: what it asks for, and that by index."""

from __future__ import annotations

import pytest
from django.db import connection

from orchestrator.testing.demo import generate
from tests.scale import pages

pytestmark = pytest.mark.django_db
#: Questions that a page may ask, those of the session, the user and the frame among them.
MOST_QUERIES = 12
MOST_BYTES = 1_000_000
#: Looks for text anywhere in subjects: no index can, so it is given a limit of time instead.
ANYWHERE = ("runs, text", "runs, part", "api runs, text", "api runs, part", "where, nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "seqscan"),
    [
        # With few rows reading all of them is right; forbidden, a plan does so only where there is no other way.
        (3_000, False),
        (100_000, True),
    ],
)
def test_pages_ask_little_and_by_index(runs: int, seqscan: bool) -> None:
    generate(runs, seed=5)
    client, problems, looked = pages.visitor(), [], 0
    for name, path in pages.pages().items():
        found = pages.look(client, path, explain=True, seqscan=seqscan)
        if found.status >= 500:
            problems.append(f"{name} {path}: {found.status}")
        if found.status != 200:
            continue
        looked += 1
        if len(found.queries) > MOST_QUERIES:
            problems.append(f"{name} {path}: {len(found.queries)} queries, at most {MOST_QUERIES} are allowed")
        if name not in ANYWHERE:
            problems += [f"{name} {path} reads a table from end to end: {sql[:300]}" for sql in found.scans]
        if found.size > MOST_BYTES:
            problems.append(f"{name} {path}: {found.size:,} bytes")
    assert looked > 60
    assert not problems, "\n".join(problems)


def test_a_scan_is_seen() -> None:
    sql = "SELECT count(*) FROM workflow_steps WHERE note = 'x'"
    assert pages.scanned(sql, seqscan=False) == {"workflow_steps"}
    assert not pages.scanned("SELECT id FROM workflow_runs WHERE id = gen_random_uuid()", seqscan=False)
    assert connection.queries is not None
