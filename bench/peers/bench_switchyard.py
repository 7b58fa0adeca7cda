"""Switchyard as it ships: worker processes, one dispatcher, runs submitted through ``orchestrator.sdk``.

Configs: one (a ``submit`` call for each run), many (``submit_many`` of 50 runs a call, as BullMQ's bulk calls).
Each measurement has a fresh database, copied from one that is migrated and published once.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import common
import driver

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))
a = common.cli(["one", "many"], "one")
marks = common.Marks()
os.environ.update(
    DATABASE_URL=common.pg_url("bench_switchyard"),
    REDIS_URL=os.environ.get("BENCH_SWITCHYARD_REDIS", common.redis_url(5)),
    DJANGO_SETTINGS_MODULE="orchestrator.settings",
    ORCHESTRATOR_WORKFLOWS="bench.workflows",
    SECRET_KEY="nothing is signed here",
    LOG_LEVEL="WARNING",
)
import psycopg  # noqa: E402
import redis  # noqa: E402

MANAGE = str(PROJECT / "manage.py")
#: Runs in one bulk call.
BULK = 50
SHAPES = {"W1": "bench-chain", "W2": "bench-wide", "W3": "bench-video"}


def fingerprint() -> str:
    """Changes when tables or workflows do."""
    files = sorted([*PROJECT.glob("*/migrations/*.py"), *PROJECT.glob("bench/workflows/*")])
    return hashlib.sha256(b"".join(f.read_bytes() for f in files if f.is_file())).hexdigest()[:12]


def fresh_database() -> None:
    """A new ``bench_switchyard``, from a template that is made at first use."""
    template = f"bench_switchyard_{fingerprint()}"
    with psycopg.connect(common.pg_url("postgres"), autocommit=True) as server:
        server.execute("DROP DATABASE IF EXISTS bench_switchyard WITH (FORCE)")
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [template]).fetchone():
            server.execute("CREATE DATABASE bench_switchyard")
            for command in (["migrate", "--verbosity", "0"], ["publish", "bench.workflows"]):
                subprocess.run([sys.executable, MANAGE, *command], check=True, stdout=subprocess.DEVNULL, cwd=PROJECT)
            server.execute(f'ALTER DATABASE bench_switchyard RENAME TO "{template}"')
        server.execute(f'CREATE DATABASE bench_switchyard TEMPLATE "{template}"')


fresh_database()
client = redis.Redis.from_url(os.environ["REDIS_URL"])
client.flushdb()
w = common.Workers()
# bench/profiling.py runs the same processes under a profiler.
runner = [sys.executable, *os.environ.get("BENCH_SWITCHYARD_RUNNER", MANAGE).split()]
w.start([*runner, "dispatcher"], cwd=PROJECT)
w.start([*runner, "worker", "default", "--processes", str(a.workers)], cwd=PROJECT)

import django  # noqa: E402

django.setup()
from orchestrator.sdk import submit as start  # noqa: E402
from orchestrator.sdk import submit_many as start_many  # noqa: E402


def request(kind: str, rid: str) -> dict:
    """Arguments of one submission; the subject names the run in the marks file."""
    return {"workflow": SHAPES[kind], "subject_id": rid, "input": {"n": a.shards} if kind == "W2" else {}}


def submit(kind: str, rid: str):
    return start(**request(kind, rid))


def submit_many(kind: str, ids: list[str]) -> None:
    for i in range(0, len(ids), BULK):
        start_many([request(kind, rid) for rid in ids[i : i + BULK]])


peer = driver.Peer(
    "switchyard", "", submit, submit_many=submit_many if a.config == "many" else None, redis_cli=client,
    notes="postgresql, synchronous commit on submit and at a run's end; tickets in valkey", warm_timeout=60,
)  # fmt: skip
driver.drive(peer, a, marks, w)
driver.leave(marks, w)
