"""procrastinate: raw jobs/s (config raw) and a hand-rolled counter fan-in
(config fanin). Only W2 is meaningful: the library has no workflow construct."""

import asyncio
import sys
import time
from importlib.metadata import version

import common
import driver

a = common.cli(["raw", "fanin"], "fanin")
marks = common.Marks()
import psycopg  # noqa: E402
from pg_tasks_sql import DDL  # noqa: E402

with psycopg.connect(common.pg_url("postgres"), autocommit=True) as c:
    c.execute("drop database if exists bench_procrastinate with (force)")
    c.execute("create database bench_procrastinate")
from procrastinate_app import app, raw, shard  # noqa: E402

pg = psycopg.connect(common.pg_url("bench_procrastinate"), autocommit=True)
pg.execute(DDL)
loop = asyncio.new_event_loop()
loop.run_until_complete(app.open_async())
loop.run_until_complete(app.schema_manager.apply_schema_async())
w = common.Workers()
for _ in range(a.workers):
    w.start(
        [
            sys.executable,
            "-m",
            "procrastinate",
            "--app=procrastinate_app.app",
            "worker",
            "--concurrency",
            str(a.concurrency),
            "--fetch-job-polling-interval",
            "1",
            "--delete-jobs",
            "successful",
        ]
    )


def submit(kind, rid):
    if a.config == "fanin":
        pg.execute("insert into bench_fanin values (%s, %s)", (rid, a.shards))
    t = shard if a.config == "fanin" else raw
    loop.run_until_complete(t.batch_defer_async(*[{"run_id": rid, "i": i} for i in range(a.shards)]))
    if a.config == "raw":  # a run is finished when its last shard is
        while sum(k.startswith(rid + ":") for k in marks.seen) < a.shards:
            marks.poll()
            time.sleep(0.002)
        last = max(t for k, t in marks.seen.items() if k.startswith(rid + ":"))
        marks.seen = {k: t for k, t in marks.seen.items() if ":" not in k}
        marks.seen[rid] = last


more = "no fan-in, submit includes the wait" if a.config == "raw" else "counter-row fan-in"
peer = driver.Peer("procrastinate", version("procrastinate"), submit, notes=f"successful jobs deleted; {more}")
driver.drive(peer, a, marks, w)
driver.leave(marks, w)
