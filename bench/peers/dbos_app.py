"""DBOS workflows, shared by the driver (client) and the executors.

chain5/video run their steps inside one workflow; fanout enqueues one child
workflow per shard so that both executors share them; fanout_steps runs the
shards as steps of one workflow; video_q enqueues the three transcodes.
"""

import asyncio
import os
import sys
import time

import common
from dbos import DBOS, DBOSConfig

POLL = float(os.environ.get("BENCH_DBOS_POLL", "1.0"))
CONC = int(os.environ.get("BENCH_DBOS_CONC", "0")) or None
POOL = int(os.environ.get("BENCH_DBOS_POOL", "20"))


def config(executor):
    return DBOSConfig(
        name="bench",
        system_database_url=common.pg_url("bench_dbos"),
        executor_id=executor,
        application_version="1",
        log_level="ERROR",
        sys_db_pool_size=POOL,
    )


@DBOS.step()
def link(i):
    return f"s{i}"


@DBOS.step()
async def alink(i):
    return f"s{i}"


@DBOS.step()
def finish(run_id):
    common.mark(run_id)
    return "done"


@DBOS.workflow()
def chain(run_id, n):
    for i in range(1, n):
        link(i)
    return finish(run_id)


@DBOS.workflow()
def shard(i):
    return f"p{i}"


@DBOS.workflow()
def fanout(run_id, n):
    hs = [DBOS.enqueue_workflow("runs", shard, i) for i in range(n)]
    parts = [h.get_result(polling_interval_sec=POLL) for h in hs]
    if len(parts) != n:
        raise RuntimeError("fan-in lost a part")
    return finish(run_id)


@DBOS.workflow()
async def fanout_steps(run_id, n):
    parts = []
    for k in range(0, n, 100):
        parts += await asyncio.gather(*[alink(i) for i in range(k, min(n, k + 100))])
    if len(parts) != n:
        raise RuntimeError("fan-in lost a part")
    return await afinish(run_id)


@DBOS.workflow()
async def video(run_id):
    await alink("probe")
    parts = await asyncio.gather(*[alink(f"t{i}") for i in range(3)])
    if len(parts) != 3:
        raise RuntimeError("fan-in lost a part")
    await alink("thumb")
    await afinish(run_id)
    return "sent"


@DBOS.step()
async def afinish(run_id):
    common.mark(run_id)
    return "done"


@DBOS.workflow()
def video_q(run_id):
    link("probe")
    hs = [DBOS.enqueue_workflow("runs", shard, i) for i in range(3)]
    if len([h.get_result(polling_interval_sec=POLL) for h in hs]) != 3:
        raise RuntimeError("fan-in lost a part")
    link("thumb")
    finish(run_id)
    return "sent"


if __name__ == "__main__":
    DBOS(config=config(sys.argv[1]))
    DBOS.launch()
    for q in ("runs",):
        DBOS.register_queue(q, worker_concurrency=CONC, polling_interval_sec=POLL, on_conflict="always_update")
    while True:
        time.sleep(3600)
