"""Celery app and no-op tasks; configured through environment variables."""

import os

import common
from celery import Celery

cfg = os.environ.get("BENCH_CONFIG", "best")
app = Celery("bench", broker=common.redis_url(0), backend=common.redis_url(1))
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,
    result_expires=3600,
)
if cfg != "default":
    app.conf.update(
        worker_prefetch_multiplier=int(os.environ.get("BENCH_PREFETCH", "16")),
        worker_disable_rate_limits=True,
        task_send_sent_event=False,
        worker_send_task_events=False,
        task_store_errors_even_if_ignored=True,
        broker_pool_limit=10,
    )
if cfg == "acks_late":
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
if cfg == "acks_late_pf16":
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)


@app.task(name="link", ignore_result=True)
def link(prev, run_id, i, last):
    if i == last:
        common.mark(run_id)
    return f"s{i}"


@app.task(name="shard")
def shard(i):
    return f"p{i}"


@app.task(name="join")
def join(parts, run_id, n):
    if len(parts) != n:
        raise RuntimeError(f"join got {len(parts)} of {n}")
    common.mark(run_id)
    return f"joined {n}"


@app.task(name="probe")
def probe(run_id):
    return "1080p"


@app.task(name="transcode")
def transcode(meta, i):
    return f"{meta}-{i}"


@app.task(name="thumbnail")
def thumbnail(parts):
    if len(parts) != 3:
        raise RuntimeError("fan-in lost a part")
    return "thumb"


@app.task(name="notify")
def notify(prev, run_id):
    common.mark(run_id)
    return "sent"
