"""RQ with depends_on. Configs: simple (SimpleWorker, no fork), fork (Worker).

W1: each step depends on the one before. W2: join depends on a list of N jobs.
W3: three jobs depend on the probe, the thumbnail on those three, notify on it.
Only the join/thumbnail read their dependencies' results (simple/fork); the
"noread" configs skip that read. "maint1" sets maintenance_interval=1 s on the
workers (stock: 600 s): in 3.0 a dependent that loses the optimistic-lock race on
the queue-wide ready registry is left there until the next maintenance pass.
"""

import sys
from importlib.metadata import version

import common
import driver
import redis
import rq_tasks as t
from rq import Queue

a = common.cli(["simple", "fork", "simple_noread", "simple_maint1", "fork_maint1"], "simple_maint1")
marks = common.Marks()
c = redis.Redis(common.REDIS_HOST, common.REDIS_PORT)
c.flushall()
q = Queue("bench", connection=c)
read = not a.config.endswith("noread")
w = common.Workers()
for _ in range(a.workers):
    w.start(
        [sys.executable, "rq_worker.py", a.config.split("_")[0]],
        env={"BENCH_RQ_MAINT": "1"} if a.config.endswith("maint1") else None,
    )


def submit(kind, rid):
    if kind == "W1":
        j = None
        for i in range(1, a.steps):
            j = q.enqueue(t.step, i, depends_on=j)
        return q.enqueue(t.last, rid, depends_on=j)
    if kind == "W2":
        jobs = q.enqueue_many([Queue.prepare_data(t.step, (i,)) for i in range(a.shards)])
        return q.enqueue(t.join, rid, a.shards, read, depends_on=jobs)
    p = q.enqueue(t.step, "probe")
    ts = [q.enqueue(t.step, f"t{i}", depends_on=p) for i in range(3)]
    th = q.enqueue(t.join, None, 3, read, depends_on=ts)
    return q.enqueue(t.last, rid, depends_on=th)


driver.drive(driver.Peer("rq", version("rq"), submit, redis_cli=c, notes="redis, no persistence"), a, marks, w)
driver.leave(marks, w)
