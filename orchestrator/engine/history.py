"""Appending what happened, in the transaction in which it happened: attempts, dead letters, audit, counters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from orchestrator.core import metric_names
from orchestrator.core.fingerprint import fingerprint
from orchestrator.core.states import DeadLetterState, RunState, StepState
from orchestrator.engine.claims import Closure
from orchestrator.engine.db import Connection, put, sql
from orchestrator.engine.edit import Audit, RunEdit

#: Increments by (metric, labels as JSON text).
Counters = dict[tuple[str, str], float]


def insert_audit(conn: Connection, records: Sequence[tuple[UUID, Audit]]) -> None:
    """Audit records of runs."""
    if records:
        params = {
            "runs": [run for run, _ in records],
            "actions": [record.action for _, record in records],
            "actors": [record.actor for _, record in records],
            "roles": [record.role for _, record in records],
            "reasons": [record.reason for _, record in records],
            "befores": [record.before for _, record in records],
            "afters": [record.after for _, record in records],
        }
        put(conn, sql("insert_audit"), params)


def insert_attempts(conn: Connection, failed: Sequence[tuple[Any, Closure]]) -> None:
    """History of attempts that did not succeed: (row of sql/settle_steps, closure)."""
    if failed:
        params = {
            "runs": [row.run_id for row, _ in failed],
            "steps": [row.id for row, _ in failed],
            "attempts": [row.attempt for row, _ in failed],
            "causes": [c.cause or row.cause for row, c in failed],
            "errors": [c.error for _, c in failed],
            "workers": [row.worker for row, _ in failed],
            "started": [row.started_at for row, _ in failed],
            "retry": [row.ready_at if row.state == StepState.WAITING else None for row, _ in failed],
        }
        put(conn, sql("insert_attempts"), params)


def insert_dead_letters(conn: Connection, dead: Sequence[tuple[Any, int, str, str, Any, str | None, int]]) -> None:
    """Dead letters: (locked run, row id, step, shard, cause, error JSON, attempts)."""
    parsed = [json.loads(error) if error else {} for *_, error, _ in dead]
    params = {
        "runs": [run.id for run, *_ in dead],
        "rows": [d[1] for d in dead],
        "workflows": [run.workflow for run, *_ in dead],
        "versions": [run.version for run, *_ in dead],
        "steps": [d[2] for d in dead],
        "shards": [d[3] for d in dead],
        "causes": [d[4] for d in dead],
        "errors": [d[5] for d in dead],
        "fingerprints": [
            fingerprint(d[0].workflow, d[2], str(d[4]), e.get("type", ""), e.get("message", ""))
            for d, e in zip(dead, parsed, strict=True)
        ],
        "attempts": [d[6] for d in dead],
    }
    put(conn, sql("insert_dead_letters"), params)


def count_run(counters: Counters, edit: RunEdit) -> None:
    """Counts a run that ends with this edit."""
    bucket = metric_names.bucket_label(metric_names.RUN_BUCKETS, edit.row.age)
    labels = {"workflow": edit.row.workflow, "state": str(edit.state)}
    count(counters, metric_names.RUN_DURATION_BUCKET, {**labels, "le": bucket})
    count(counters, metric_names.RUN_DURATION_SUM, labels, edit.row.age)
    if edit.state is RunState.FAILED:
        cause = str(edit.row.cause or edit.cause or "error")
        count(counters, metric_names.RUNS_FAILED, {"workflow": edit.row.workflow, "cause": cause})


def count(counters: Counters, metric: str, labels: dict[str, str], value: float = 1) -> None:
    """Adds to a counter that the next :func:`append_counters` appends."""
    key = (metric, json.dumps(labels, sort_keys=True))
    counters[key] = counters.get(key, 0) + value


def append_counters(conn: Connection, counters: Counters) -> None:
    """Appends the increments and empties ``counters``."""
    if counters:
        metrics, labels = map(list, zip(*counters, strict=True))
        values = [float(value) for value in counters.values()]
        put(conn, sql("insert_rollups"), {"metrics": metrics, "labels": labels, "values": values})
        counters.clear()


def insert_alerts(conn: Connection, alerts: Sequence[tuple[UUID, str, int]]) -> None:
    """Alerts (run, kind, how often the run was retried) to be sent when this has committed; none if nobody listens."""
    if alerts and (settings.ALERT_WEBHOOK_URL or settings.ALERT_EMAIL):
        query = """
            INSERT INTO workflow_alerts (key, run_id, kind)
            SELECT * FROM unnest(%s::text[], %s::uuid[], %s::text[]) ON CONFLICT (key) DO NOTHING"""
        keys = [f"{run_id}:{kind}:{retries}" for run_id, kind, retries in alerts]
        put(conn, query, [keys, [run_id for run_id, _, _ in alerts], [kind for _, kind, _ in alerts]])


def insert_outbox(conn: Connection, tickets: Sequence[tuple[UUID, int, str, str, int, bool]]) -> None:
    """Tickets (run, definition, step, queue, count, gated) to publish when the transaction has committed."""
    if tickets:
        runs, definitions, steps, queues, counts, gated = map(list, zip(*tickets, strict=True))
        put(conn, sql("insert_outbox"), {"runs": runs, "definitions": definitions, "steps": steps, "queues": queues,
             "tickets": counts, "gated": gated})  # fmt: skip


def close_dead_letters(
    conn: Connection, step_rows: list[int], state: DeadLetterState, note: str, was: str = DeadLetterState.OPEN
) -> None:
    """Closes the dead letters of these rows that are open (or ``was``)."""
    query = """
        UPDATE workflow_dead_letters SET state = %s, closed_at = clock_timestamp(),
               note = CASE WHEN %s = '' THEN note ELSE %s END
        WHERE step_row_id = ANY(%s) AND state = %s"""
    put(conn, query, [state, note, note, step_rows, was])
