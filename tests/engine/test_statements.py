"""The hot statements: how many there are whatever the batch, and which index they use on a filled table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from orchestrator.core.states import StepState
from orchestrator.engine import transitions
from orchestrator.engine.db import SQL_DIR, connect, sql
from orchestrator.engine.settle import close_attempts
from orchestrator.engine.submit import submit, submit_many
from orchestrator.engine.transitions import Closure, Ticket
from orchestrator.models import Definition, Run


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything that psycopg is asked to execute."""
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def note(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        seen.append(str(query))
        return execute(self, query, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", note)
        yield seen


def settle(kit, monkeypatch: pytest.MonkeyPatch, workflow: str, count: int, ending: StepState) -> int:
    """Statements that it takes to settle the first step of so many runs at once."""
    first = {"chain": "a", "static": "f", "saga": "a"}[workflow]
    runs = submit_many([{"workflow": f"kit-{workflow}", "subject_id": f"s{i}"} for i in range(count)])
    kit.worker.tickets()
    rows = transitions.claim(kit.worker.conn, [Ticket(run, first, 3) for run in runs], kit.worker.holder)
    error = '{"type": "E", "message": "m"}' if ending == StepState.WAITING else None
    closures = [Closure(r.run_id, r.id, r.attempt, r.token, ending, "error" if error else None, 60.0, error=error)
                for r in rows]  # fmt: skip
    with statements(monkeypatch) as seen:
        assert close_attempts(kit.worker.conn, closures).changed == len(rows)
    return len(seen)


@pytest.mark.parametrize("ending", [StepState.DONE, StepState.WAITING])
@pytest.mark.parametrize("workflow", ["chain", "static"])
def test_a_batch_costs_as_many_statements_as_one(kit, monkeypatch, workflow, ending):
    """DESIGN 1.2: every hot statement takes arrays, over runs too."""
    settle(kit, monkeypatch, workflow, 1, ending)  # the definition is read once
    one = settle(kit, monkeypatch, workflow, 1, ending)
    many = settle(kit, monkeypatch, workflow, 40, ending)
    assert one == many <= 14
    kit.worker.conn.execute("DELETE FROM workflow_outbox")


def test_submitting_many_is_one_statement(kit, monkeypatch):
    requests = [{"workflow": "kit-chain", "subject_id": f"s{i}"} for i in range(50)]
    submit_many(requests[:1])
    with statements(monkeypatch) as seen:
        submit_many(requests)
    written = [s for s in seen if "INSERT" in s or "UPDATE" in s]
    assert len(written) == 1
    kit.worker.work()


def test_submitting_one_is_one_statement_and_no_transaction(kit, monkeypatch):
    submit("kit-chain", "first")
    with statements(monkeypatch) as seen:
        run_id = submit("kit-chain", "second")
    assert len(seen) == 1
    assert Run.objects.get(pk=run_id).subject_id == "second"
    kit.worker.work()


def test_a_version_published_or_retired_by_somebody_else_is_noticed(kit):
    """The latest version is remembered by each process; the statement that submits confirms it."""
    old = Run.objects.get(pk=submit("kit-solo", "s")).definition
    newer = Definition.objects.create(
        workflow=old.workflow, version=old.version + 1, spec={**old.spec, "version": old.version + 1}, content_hash="x"
    )
    assert Run.objects.get(pk=submit("kit-solo", "s")).definition == newer
    Definition.objects.filter(pk=newer.pk).update(retired_at="2026-01-01T00:00:00Z")
    assert Run.objects.get(pk=submit("kit-solo", "s")).definition == old
    kit.worker.work()


FILL = """
INSERT INTO workflow_steps (run_id, step, shard, ordinal, kind, state, attempt, max_attempts, generation, queue,
                            ready_at, finished_at, waiting_for)
SELECT r.id, 'x' || n % 7, n::text, n, 'step', s.state, 1, 1, 0, 'default', now() - n * interval '1 second',
       CASE s.state WHEN 'done' THEN now() END, CASE s.state WHEN 'waiting' THEN 'retry' END
FROM workflow_runs r, generate_series(1, 120) n,
     LATERAL (SELECT CASE WHEN n % 40 = 0 THEN 'waiting' WHEN n % 20 = 0 THEN 'queued' ELSE 'done' END AS state) s
"""


@pytest.fixture
def filled(kit) -> Iterator[psycopg.Connection[Any]]:
    """150 runs with 120 rows each, most of them ended."""
    submit_many([{"workflow": "kit-chain", "subject_id": f"s{i}"} for i in range(150)])
    conn = connect("planner")
    conn.execute(FILL)
    conn.execute("ANALYZE workflow_steps, workflow_runs, workflow_leases, workflow_outbox")
    yield conn
    conn.close()
    for table in ("workflow_outbox", "workflow_steps", "workflow_runs"):
        kit.worker.conn.execute(f"DELETE FROM {table}")


def plan(conn: psycopg.Connection[Any], name: str, params: dict[str, Any]) -> str:
    """The plan; on a table as small as a test's, a scan would win where an index could serve."""
    with conn.transaction(force_rollback=True):
        conn.execute("SET LOCAL enable_seqscan = off")
        return "\n".join(row[0] for row in conn.execute("EXPLAIN " + sql(name), params).fetchall())


def test_the_hot_statements_use_their_indexes(filled):
    runs = [row.id for row in filled.execute("SELECT id FROM workflow_runs LIMIT 8").fetchall()]
    ids = [row.id for row in filled.execute("SELECT id FROM workflow_steps LIMIT 8").fetchall()]
    n = len(ids)
    cases: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "lock_runs": ({"runs": runs}, ("Index Scan",)),
        "claim_steps": (
            {"runs": runs, "steps": ["a"] * n, "limits": [5] * n, "lease": 1, "worker": "w"},
            ("workflow_steps_queued",),
        ),
        "settle_steps": (
            {"ids": ids, "attempts": [1] * n, "tokens": [1] * n, "states": ["done"] * n, "causes": [None] * n,
             "delays": [None] * n, "outputs": [None] * n, "refs": [None] * n, "errors": [None] * n},
            ("workflow_steps_pkey",),
        ),
        "wake_due": ({"limit": 100}, ("workflow_steps_due", "workflow_steps_waiting")),
        "release_claims": ({"ids": ids, "attempts": [1] * n, "tokens": [1] * n}, ("workflow_steps_pkey",)),
        "release_shards": (
            {"runs": runs, "steps": ["a"] * n, "counts": [3] * n, "states": ["queued"] * n},
            ("workflow_steps_pending",),
        ),
        "close_unstarted": ({"run": runs[0], "reason": "cancel"}, ("workflow_steps_run_step_shard_key",)),
        "select_lost": ({"limit": 100}, ("workflow_steps_leased",)),
        "select_started": ({"run": runs[0]}, ("workflow_steps_run_step_shard_key",)),
    }  # fmt: skip
    problems = []
    for name, (params, indexes) in cases.items():
        text = plan(filled, name, params)
        if "Seq Scan on workflow_" in text or not any(index in text for index in indexes):
            problems.append(f"{name} does not use {indexes}:\n{text}")
    assert not problems, "\n".join(problems)


def test_every_statement_says_what_it_locks_and_by_which_index_it_finds(kit):
    there = {row.indexname for row in kit.worker.conn.execute("SELECT indexname FROM pg_indexes").fetchall()}
    problems = []
    for path in sorted(SQL_DIR.glob("*.sql")):
        head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("--"))
        index = re.search(r"^-- Index: (.+)", head, re.MULTILINE)
        if not re.search(r"^-- Lock order: .+", head, re.MULTILINE) or index is None:
            problems.append(f"{path.name} lacks its lock order or its index")
        elif unknown := set(re.findall(r"\bworkflow_\w+", index[1])) - there:
            problems.append(f"{path.name} names {sorted(unknown)}, which do not exist")
    assert not problems, "\n".join(problems)
