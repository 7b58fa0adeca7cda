"""Starts one RQ worker of the class named in argv."""

import os
import sys

import common
import redis
import rq
import rq_tasks  # noqa: F401  (imported before any fork)

cls = {"simple": rq.SimpleWorker, "fork": rq.Worker}[sys.argv[1]]
c = redis.Redis(common.REDIS_HOST, common.REDIS_PORT)
cls(
    [rq.Queue("bench", connection=c)],
    connection=c,
    log_job_description=False,
    name=f"w{os.getpid()}",
    maintenance_interval=int(os.environ.get("BENCH_RQ_MAINT", "600")),
).work(logging_level="ERROR")
