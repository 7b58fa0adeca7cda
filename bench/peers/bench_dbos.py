"""DBOS Transact on PostgreSQL: runs are enqueued by a DBOSClient on a queue that
two executor processes listen to; one queue serves runs and shards (each polled queue costs CPU).

Configs: best (queue poll 10 ms, worker_concurrency unlimited unless
--concurrency is above 1, steps inside the workflow), default (queue poll 1 s as
shipped), queue (shards and transcodes as child workflows on a queue, poll 10 ms).
In "best" W2 fans out as child workflows too; "steps" runs the shards as steps of
one workflow (one process).
"""

import os
import sys
import time
from importlib.metadata import version

import common
import driver

a = common.cli(["best", "default", "queue", "steps"], "best")
poll = "1.0" if a.config == "default" else os.environ.get("BENCH_POLL", "0.05")
env = {"BENCH_DBOS_POLL": poll, "BENCH_DBOS_CONC": str(a.concurrency if a.concurrency > 1 else 0)}
os.environ.update(env)
marks = common.Marks()
import psycopg  # noqa: E402

with psycopg.connect(common.pg_url("postgres"), autocommit=True) as c:
    c.execute("drop database if exists bench_dbos with (force)")
    c.execute("create database bench_dbos")
from dbos import DBOSClient  # noqa: E402
from dbos.cli.migration import run_dbos_database_migrations  # noqa: E402

run_dbos_database_migrations(system_database_url=common.pg_url("bench_dbos"))
w = common.Workers()
for i in range(a.workers):
    w.start([sys.executable, "dbos_app.py", f"ex{i}"], env=env)
    time.sleep(1.5)
client = DBOSClient(system_database_url=common.pg_url("bench_dbos"))
names = {
    "W1": "chain",
    "W2": "fanout_steps" if a.config == "steps" else "fanout",
    "W3": "video_q" if a.config == "queue" else "video",
}


def submit(kind, rid):
    opts = {"queue_name": "runs", "workflow_name": names[kind], "app_version": "1", "workflow_id": rid}
    args = {"W1": (rid, a.steps), "W2": (rid, a.shards), "W3": (rid,)}[kind]
    return client.enqueue(opts, *args)


def wait(h):
    h.get_result(polling_interval_sec=0.005)


peer = driver.Peer("dbos", version("dbos"), submit, wait=wait if a.workload == "W4" else None,
                   notes=f"queue poll {poll} s, concurrency {a.concurrency if a.concurrency > 1 else 'unlimited'}"
                         " per process")  # fmt: skip
driver.drive(peer, a, marks, w)
driver.leave(marks, w)
