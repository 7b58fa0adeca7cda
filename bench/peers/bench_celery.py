"""Celery canvas: chain (W1), chord (W2), chain with a group inside (W3).

Configs: best (solo pool, prefetch 16, no gossip/mingle/heartbeat), default
(prefork pool, stock settings), prefork (prefork pool, settings of best),
acks_late (prefetch 1), acks_late_pf16.
"""

import os
import sys

import common
import driver

a = common.cli(["best", "default", "prefork", "threads", "acks_late", "acks_late_pf16"], "best")
os.environ["BENCH_CONFIG"] = a.config
marks = common.Marks()

import celery  # noqa: E402
import celery_tasks as t  # noqa: E402
import redis  # noqa: E402
from celery import chain, chord, group  # noqa: E402

r = redis.Redis(common.REDIS_HOST, common.REDIS_PORT)
r.flushall()
pool = {"default": "prefork", "prefork": "prefork", "threads": "threads"}.get(a.config, "solo")
w = common.Workers()
for i in range(a.workers):
    cmd = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "celery_tasks",
        "worker",
        "-P",
        pool,
        "-c",
        str(a.concurrency),
        "-n",
        f"w{i}@bench",
        "-l",
        "warning",
    ]
    if a.config != "default":
        cmd += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    w.start(cmd)


def submit(kind, rid):
    if kind == "W1":
        n = a.steps
        return chain(
            *[t.link.si(None, rid, i, n) if i == 1 else t.link.s(rid, i, n) for i in range(1, n + 1)]
        ).apply_async()
    if kind == "W2":
        return chord([t.shard.s(i) for i in range(a.shards)])(t.join.s(rid, a.shards))
    return chain(
        t.probe.s(rid), group(t.transcode.s(i) for i in range(3)), t.thumbnail.s(), t.notify.s(rid)
    ).apply_async()


def wait(h):
    h.get(timeout=20)


peer = driver.Peer("celery", celery.__version__, submit, wait=wait if a.workload == "W4" else None, redis_cli=r,
                   notes=f"pool={pool}; broker redis, no persistence")  # fmt: skip
driver.drive(peer, a, marks, w)
driver.leave(marks, w)
