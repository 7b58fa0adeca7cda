import common
import procrastinate
from pg_tasks_sql import DEC
from psycopg_pool import AsyncConnectionPool

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=common.pg_url("bench_procrastinate")))
_pool = None


async def pool():
    global _pool
    if _pool is None:
        _pool = AsyncConnectionPool(
            common.pg_url("bench_procrastinate"), min_size=1, max_size=8, open=False, kwargs={"autocommit": True}
        )
        await _pool.open()
    return _pool


@app.task(name="raw")
async def raw(run_id, i):
    common.mark(f"{run_id}:{i}")
    return "p"


@app.task(name="shard")
async def shard(run_id, i):
    async with (await pool()).connection() as c:
        left = (await (await c.execute(DEC, (run_id,))).fetchone())[0]
    if left == 0:
        await join.defer_async(run_id=run_id)
    return "p"


@app.task(name="join")
async def join(run_id):
    common.mark(run_id)
    return "joined"
